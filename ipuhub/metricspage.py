"""io: `/metrics`, for who may read it."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ipuhub.kube.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.access import Reviewer
    from ipuhub.metrics import Meters

PATH: Final = "/metrics"
# What every scraper knows; the client library would name a newer one, which says the same here.
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="ipuhub"'}
_HOW: Final = (
    "Send Authorization: Bearer <token>: of a service account that may get the URL /metrics "
    "(a ClusterRole with nonResourceURLs), or IPUHUB_METRICS_TOKEN."
)


class Guard:
    """Who may read metrics: who holds `token` (empty: nobody), or may get /metrics by RBAC.

    `reviewer` is called when the API server is needed; it returns None where there is none, and
    may raise ConfigError.
    """

    def __init__(self, token: str, reviewer: Callable[[], Reviewer | None]) -> None:
        self._token = token.encode()
        self._reviewer = reviewer

    async def refusal(self, authorization: str) -> web.Response | None:
        """The answer to who may not read; None: he may. Unknown is refused, too."""
        scheme, _, text = authorization.partition(" ")
        given = text.strip()
        if scheme.lower() != "bearer" or not given:
            return _answer(401, f"A bearer token is needed. {_HOW}", _CHALLENGE)
        if self._token and hmac.compare_digest(given.encode(errors="surrogateescape"), self._token):
            return None
        try:
            return await self._review(given)
        except (ApiError, ConfigError) as error:
            why = f"The API server cannot be asked about this token: {error}"
            return _answer(503, why, {"Retry-After": "5"})

    async def _review(self, token: str) -> web.Response | None:
        reviewer = self._reviewer()
        user = await reviewer.authenticate(token) if reviewer else None
        if reviewer is None or user is None:
            return _answer(401, f"This token is not valid. {_HOW}", _CHALLENGE)
        if not await reviewer.authorize_path(user, verb="get", path=PATH):
            return _answer(403, f"{user.username} may not get the URL {PATH}. {_HOW}")
        return None


def metrics_route(meters: Meters, guard: Guard) -> web.RouteDef:
    """The page, for a process that has a web server anyway."""

    async def metrics(request: web.Request) -> web.Response:
        refusal = await guard.refusal(request.headers.get("Authorization", ""))
        if refusal is not None:
            return refusal
        return web.Response(body=meters.render(), headers={"Content-Type": _CONTENT_TYPE})

    return web.get(PATH, metrics)


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=headers)
