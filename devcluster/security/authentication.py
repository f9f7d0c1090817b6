"""io: authenticates requests: client certificates and service-account tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from devcluster.paths import AUTHENTICATED, User, account_user
from devcluster.status import StatusError
from ipuhub.certificates import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from aiohttp import web

    from devcluster.storage.store import Item, Store

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_ALGORITHM: Final = "ES256"


class Authenticator:
    """Issues tokens, and identifies the user of a certificate or token."""

    def __init__(self, store: Store, folder: Path, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "sa.key"
        if not path.exists():
            fresh = ec.generate_private_key(ec.SECP256R1())
            pem = fresh.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            write_private(path, pem)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{path} holds no elliptic-curve key")
        self._key = key

    def issue_token(
        self, account: Item, audiences: Sequence[str], seconds: int, bound: Item | None = None
    ) -> tuple[str, float]:
        """Return a token for a service account and when it ends (Unix time).

        It ends earlier with its account, or with the object it is bound to.
        """
        namespace, name = account.key
        now = self._clock().timestamp()
        claims: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": account.body["metadata"]["uid"]},
        }
        if bound is not None:
            reference = {"name": bound.key[1], "uid": bound.body["metadata"]["uid"]}
            claims[bound.body["kind"].lower()] = reference
        payload = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "aud": list(audiences) or [ISSUER],
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now) + seconds,
            "kubernetes.io": claims,
        }
        return jwt.encode(payload, self._key, algorithm=_ALGORITHM), int(now) + seconds

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]] | None:
        """Return whose token it is and for which of `audiences`; None for a bad token."""
        try:
            claims = jwt.decode(
                token,
                self._key.public_key(),
                algorithms=[_ALGORITHM],
                issuer=ISSUER,
                options={
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidTokenError:
            return None
        shared = [a for a in (audiences or [ISSUER]) if a in claims["aud"]]
        if claims["exp"] <= self._clock().timestamp() or not shared:
            return None
        bound = claims["kubernetes.io"]
        namespace, account = bound["namespace"], bound["serviceaccount"]
        owners = [("serviceaccounts", account)]
        owners += [(f"{kind}s", bound[kind]) for kind in ("pod", "secret") if kind in bound]
        for bucket, reference in owners:
            item = self._store.get(bucket, namespace, reference["name"])
            if item is None or item.body["metadata"]["uid"] != reference["uid"]:
                return None
        extra = {}
        if "pod" in bound:
            prefix = "authentication.kubernetes.io/pod"
            extra = {f"{prefix}-{key}": [bound["pod"][key]] for key in ("name", "uid")}
        return account_user(namespace, account["name"], account["uid"], extra), shared

    def authenticate(self, request: web.Request) -> User:
        """Return who makes the request; StatusError 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            found = self.review(token.strip(), [ISSUER])
            if found is not None:
                return found[0]
        elif request.transport is not None:
            user = _certificate_user(request.transport.get_extra_info("peercert"))
            if user is not None:
                return user
        raise StatusError(401, "Unauthorized", "Unauthorized")


def _certificate_user(certificate: dict[str, Any] | None) -> User | None:
    if not certificate:
        return None
    names = [pair for group in certificate.get("subject", ()) for pair in group]
    users = [value for name, value in names if name == "commonName"]
    groups = [value for name, value in names if name == "organizationName"]
    return User(users[0], (*groups, AUTHENTICATED)) if users else None
