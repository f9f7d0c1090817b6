"""io: bearer tokens for other services: from the API server, or fixed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import SERVICE_ACCOUNTS
from ipuhub.times import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)
_LIFE_SECONDS: Final = 3600
_RENEW_AT: Final = 0.8  # of the lifetime: leaves time for an outage of the API server of minutes
_RETRY_SECONDS: Final = 5.0


class FixedToken:
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def __call__(self) -> str:
        return self._token


class TokenSource:
    """Tokens of service account `namespace/name` for one audience, renewed at 80 % of their life.

    While the API server is unavailable, the old token is used until it expires.
    """

    def __init__(
        self,
        client: KubeClient,
        service_account: str,
        audience: str,
        *,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        namespace, _, name = service_account.partition("/")
        if not namespace or not name:
            raise ValueError(f"{service_account!r} is not a service account: use namespace/name")
        self._client = client
        self._account = (namespace, name)
        self._audience = audience
        self._now = now
        self._token = ""
        self._renew_at = self._expires_at = datetime.min.replace(tzinfo=UTC)
        self._tried_at = self._renew_at
        self._lock = asyncio.Lock()

    async def __call__(self) -> str:
        """Return a valid token. Raises ApiError if there is none and none can be requested."""
        if self._now() >= self._renew_at:
            async with self._lock:
                if self._now() >= self._renew_at:
                    await self._renew()
        return self._token

    async def _renew(self) -> None:
        asked_at = self._now()
        usable = bool(self._token) and asked_at < self._expires_at
        if usable and (asked_at - self._tried_at).total_seconds() < _RETRY_SECONDS:
            return
        self._tried_at = asked_at
        namespace, name = self._account
        spec = {"audiences": [self._audience], "expirationSeconds": _LIFE_SECONDS}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        try:
            answer = await self._client.create(
                SERVICE_ACCOUNTS, body, namespace, subresource="token", name=name
            )
        except ApiError as error:
            if not usable:
                raise
            log.warning("token not renewed", account=f"{namespace}/{name}", problem=str(error))
            return
        self._token = answer["status"]["token"]
        # The server may grant another life than was asked for.
        self._expires_at = datetime.fromisoformat(answer["status"]["expirationTimestamp"])
        self._renew_at = asked_at + (self._expires_at - asked_at) * _RENEW_AT
