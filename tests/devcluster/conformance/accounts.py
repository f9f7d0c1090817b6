"""io: service accounts, their tokens, and reviews of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json

AUTHENTICATION = "/apis/authentication.k8s.io/v1"


async def make_account(api: Api, namespace: str, name: str = "robot") -> Json:
    """Make a service account."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    return dict((await api.create(path, body)).ok(201))


async def request_token(api: Api, namespace: str, name: str = "robot", **spec: Any) -> Json:
    """Ask for a token of an account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], **spec},
    }
    return dict((await api.create(path, body)).ok(201))


async def review(api: Api, token: str, *audiences: str) -> Json:
    """Return the status of a TokenReview."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": list(audiences)},
    }
    return dict((await api.create(f"{AUTHENTICATION}/tokenreviews", body)).ok(201)["status"])
