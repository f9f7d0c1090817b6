"""io: who may ask the proxy about which job's partitions, as the API server says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from partitions.proxy.problems import Problem

if TYPE_CHECKING:
    from aiohttp import web

    from ipuhub.kube.access import User

AUDIENCE: Final = "ipuhub-proxy"


class Reviews(Protocol):
    """Token and access reviews; both raise ApiError when the API server cannot be asked."""

    async def authenticate(self, token: str) -> User | None:
        """The token's user; None when it is not valid for our audience."""
        ...

    async def authorize(  # noqa: PLR0913  # the attributes of one access
        self,
        user: User,
        *,
        verb: str,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> bool:
        """Whether the user may; an empty namespace asks for all of them."""
        ...


class Access:
    """The one authorisation function of `/v1`."""

    def __init__(self, reviews: Reviews) -> None:
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
