"""Tokens of accounts: claims, lifetime, and TokenReviews."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance.accounts import make_account, request_token, review
from tests.devcluster.conformance.api import connect_as, eventually

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl
    from tests.devcluster.conformance.servers import Server


def claims_of(token: str) -> Json:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


async def test_a_token_names_its_account_and_audience(api: Api, namespace: str) -> None:
    made = await make_account(api, namespace)
    answer = await request_token(api, namespace, audiences=["one"], expirationSeconds=1200)
    assert answer["kind"] == "TokenRequest"
    claims = claims_of(answer["status"]["token"])
    assert claims["aud"] == ["one"]
    assert claims["sub"] == f"system:serviceaccount:{namespace}:robot"
    assert claims["exp"] - claims["iat"] == 1200
    kubernetes = claims["kubernetes.io"]
    assert kubernetes["namespace"] == namespace
    assert kubernetes["serviceaccount"] == {"name": "robot", "uid": made["metadata"]["uid"]}


async def test_the_answer_says_when_a_token_expires(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    answer = await request_token(api, namespace, expirationSeconds=3600)
    expiry = datetime.fromisoformat(answer["status"]["expirationTimestamp"])
    assert expiry.timestamp() == claims_of(answer["status"]["token"])["exp"]
    assert answer["spec"]["expirationSeconds"] == 3600


async def test_a_token_without_audience_is_for_the_api(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    answer = await request_token(api, namespace)
    status = await review(api, answer["status"]["token"])
    assert status["authenticated"] is True
    assert claims_of(answer["status"]["token"])["aud"] == answer["spec"]["audiences"]


@pytest.mark.parametrize("seconds", [0, 599, 2**32 + 1])
async def test_too_short_or_long_a_life_is_422(api: Api, namespace: str, seconds: int) -> None:
    await make_account(api, namespace)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/robot/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["a"], "expirationSeconds": seconds},
    }
    status = (await api.create(path, body)).refused(422, "Invalid")
    assert "spec.expirationSeconds: Invalid value" in status["message"]


async def test_there_is_no_token_for_a_missing_account(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/nobody/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["a"]},
    }
    status = (await api.create(path, body)).refused(404, "NotFound")
    assert status["message"] == 'serviceaccounts "nobody" not found'


async def test_a_review_names_the_user_and_its_groups(api: Api, namespace: str) -> None:
    made = await make_account(api, namespace)
    token = (await request_token(api, namespace))["status"]["token"]
    user = (await review(api, token))["user"]
    assert user["username"] == f"system:serviceaccount:{namespace}:robot"
    assert user["uid"] == made["metadata"]["uid"]
    assert set(user["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    }


async def test_a_review_for_the_right_audience_names_it(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace, audiences=["proxy", "b"]))["status"]["token"]
    status = await review(api, token, "other", "proxy")
    assert status["authenticated"] is True
    assert status["audiences"] == ["proxy"]


async def test_a_review_for_a_wrong_audience_refuses(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace, audiences=["proxy"]))["status"]["token"]
    for audiences in (("other",), ()):
        status = await review(api, token, *audiences)
        assert not status.get("authenticated")
        assert status["error"]
        assert not status["user"]


@pytest.mark.parametrize("token", ["nonsense", "a.b.c"])
async def test_a_review_of_nonsense_is_not_authenticated(api: Api, token: str) -> None:
    status = await review(api, token)
    assert not status.get("authenticated")
    assert not status["user"]


async def test_a_forged_token_is_refused(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace))["status"]["token"]
    head, body, signature = token.split(".")
    changed = signature[:-8] + ("A" * 8 if signature[-8:] != "A" * 8 else "B" * 8)
    assert not (await review(api, f"{head}.{body}.{changed}")).get("authenticated")
    claims = {**claims_of(token), "sub": "system:serviceaccount:kube-system:admin"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert not (await review(api, f"{head}.{forged}.{signature}")).get("authenticated")


async def test_a_token_ends_with_its_account(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace))["status"]["token"]
    (await api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/robot")).ok(200)

    async def is_refused() -> bool:
        return not (await review(api, token)).get("authenticated")

    await eventually(is_refused)


async def test_a_token_for_another_audience_opens_no_door(
    api: Api, namespace: str, server: Server
) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace, audiences=["proxy"]))["status"]["token"]
    async with connect_as(server.kubeconfig, token) as robot:
        (await robot.get(f"/api/v1/namespaces/{namespace}/pods")).refused(401, "Unauthorized")


def test_kubectl_creates_a_token(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-n", namespace, "serviceaccount", "robot")
    token = kubectl.run(
        "create", "-n", namespace, "token", "robot", "--audience=proxy", "--duration=20m"
    )
    claims = claims_of(token.strip())
    assert claims["aud"] == ["proxy"]
    assert claims["exp"] - claims["iat"] == 1200
