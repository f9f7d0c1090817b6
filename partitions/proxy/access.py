"""io: who may ask the proxy about which job's partitions, as the API server says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from partitions.proxy.problems import Problem

if TYPE_CHECKING:
    from aiohttp import web

    from ipuhub.kube.access import Reviewer, User

AUDIENCE: Final = "ipuhub-proxy"


class Access:
    """The one authorisation function of `/v1`. Raises ApiError where `reviews` cannot ask."""

    def __init__(self, reviews: Reviewer) -> None:
        self._reviews = reviews

    async def user(self, request: web.Request) -> User:
        """Who asks; raises Problem 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem(
                401, f"a bearer token of audience {AUDIENCE} is needed (TokenRequest)", challenge
            )
        user = await self._reviews.authenticate(token.strip())
        if user is None:
            raise Problem(401, f"the token is not valid, or not for audience {AUDIENCE}", challenge)
        return user

    async def may(self, user: User, verb: str, namespace: str = "") -> bool:
        """Whether `user` may do `verb` to partitions of jobs in a namespace, or everywhere."""
        return await self._reviews.authorize(
            user,
            verb=verb,
            group="graphcore.ai",
            resource="ipujobs",
            subresource="partitions",
            namespace=namespace,
        )

    async def require(self, user: User, verb: str, namespace: str = "") -> None:
        """Raise Problem 403 unless `user` may."""
        if not await self.may(user, verb, namespace):
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            raise Problem(403, f"{user.username} may not {verb} ipujobs/partitions {where}")
