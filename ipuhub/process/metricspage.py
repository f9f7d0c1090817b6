"""io: `/metrics`, for clients that may read it."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ipuhub.kube.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipuhub.kube.access import Reviewer
    from ipuhub.process.metrics import Page

PATH: Final = "/metrics"
# What every scraper knows; the client library would name a newer version, which says the same here.
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="ipuhub"'}
_HOW: Final = (
    "Send Authorization: Bearer <token> with IPUHUB_METRICS_TOKEN, or with the token of a "
    "service account that may get the URL /metrics (a ClusterRole with nonResourceURLs)."
)


class Refused(Exception):  # noqa: N818  # an answer, not an error
    """The caller may not read metrics: `str()` is a message, `status` and `headers` are HTTP's."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = dict(headers or {})


def refuse_invalid_token() -> Refused:
    """Return the answer to an invalid token."""
    return Refused(401, f"This token is not valid. {_HOW}", _CHALLENGE)


def refuse_without_right(who: str) -> Refused:
    """Return the answer to a known caller without the right."""
    return Refused(403, f"{who} may not get the URL {PATH}. {_HOW}")


def refuse_unchecked_token(cause: object) -> Refused:
    """The answer while it is not known whose the token is."""
    text = f"The API server cannot check this token: {cause}"
    return Refused(503, text, {"Retry-After": "5"})


class Guard:
    """The right to read metrics: holders of `token` (empty: no one), and accounts that may get
    /metrics by RBAC.

    `reviewer` is called when the API server is needed; it returns None where there is none, and
    may raise ConfigError.
    """

    def __init__(self, token: str, reviewer: Callable[[], Reviewer | None]) -> None:
        self._token = token.encode()
        self._reviewer = reviewer

    async def check(self, authorization: str) -> None:
        """Raise Refused if the caller may not read metrics, or if that cannot be determined."""
        given = self.unjudged(authorization)
        if given:
            await self.review(given)

    def unjudged(self, authorization: str) -> str:
        """The bearer token that has to be judged; empty: it is ours. Raises Refused without a
        token."""
        scheme, _, text = authorization.partition(" ")
        given = text.strip()
        if scheme.lower() != "bearer" or not given:
            raise Refused(401, f"A bearer token is required. {_HOW}", _CHALLENGE)
        if self._token and hmac.compare_digest(given.encode(errors="surrogateescape"), self._token):
            return ""
        return given

    async def review(self, token: str) -> None:
        """Raise Refused unless the API server allows the token's owner to read."""
        try:
            reviewer = self._reviewer()
            user = await reviewer.authenticate(token) if reviewer else None
            if reviewer is None or user is None:
                raise refuse_invalid_token()
            if not await reviewer.authorize_path(user, verb="get", path=PATH):
                raise refuse_without_right(user.username)
        except (ApiError, ConfigError) as error:
            raise refuse_unchecked_token(error) from error


def metrics_route(page: Page, guard: Guard) -> web.RouteDef:
    """The page, for a process that has a web server anyway."""

    async def metrics(request: web.Request) -> web.Response:
        try:
            await guard.check(request.headers.get("Authorization", ""))
        except Refused as no:
            return web.Response(status=no.status, text=f"{no}\n", headers=no.headers)
        return web.Response(body=page.render(), headers={"Content-Type": _CONTENT_TYPE})

    return web.get(PATH, metrics)
