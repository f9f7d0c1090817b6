"""io: asks the API server who a bearer token belongs to, and what that user may do."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ipuhub.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipuhub.kube.client import KubeClient

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")
_REMEMBER_SECONDS: Final = 10.0
_REMEMBER_ENTRIES: Final = 4096


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. `extra` belongs to what the API server authorises by."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Reviewer:
    """Asks the API server about tokens and permissions, and caches answers for about 10 s.

    A token must be valid for `audience`; empty: for the API server itself. API failures raise
    ApiError, so that callers never take an outage for a refusal.
    """

    def __init__(
        self, client: KubeClient, audience: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._audience = audience
        self._users: _Remembered[bytes, User | None] = _Remembered(clock)
        self._answers: _Remembered[tuple[User, str], bool] = _Remembered(clock)

    async def authenticate(self, token: str) -> User | None:
        """Return the token's user; None when it is invalid, expired or for another audience."""
        if not token or not token.isascii():  # a token with other bytes is never valid
            return None
        # The hash, so that a memory dump of the cache gives no tokens away.
        key = hashlib.sha256(token.encode()).digest()
        known, user = self._users.find(key)
        if not known:
            user = await self._review_token(token)
            self._users.keep(key, user)
        return user

    async def authorize(  # the attributes of one access
        self,
        user: User,
        *,
        verb: str,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
    ) -> bool:
        """Return whether `user` may do it; without a namespace: in all namespaces at once."""
        attributes = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
        }
        given = {key: value for key, value in attributes.items() if value}
        return await self._authorize(user, {"resourceAttributes": given})

    async def authorize_path(self, user: User, *, verb: str, path: str) -> bool:
        """Return whether `user` may do `verb` (get, ...) on a URL path such as /metrics."""
        return await self._authorize(user, {"nonResourceAttributes": {"verb": verb, "path": path}})

    async def _authorize(self, user: User, attributes: dict[str, dict[str, str]]) -> bool:
        key = (user, repr(attributes))
        known, allowed = self._answers.find(key)
        if known:
            return bool(allowed)
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            **attributes,
        }
        body = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "spec": spec,
        }
        review = await self._client.create(SUBJECT_ACCESS_REVIEWS, body)
        status = review.get("status") or {}
        allowed = bool(status.get("allowed")) and not status.get("denied")
        self._answers.keep(key, allowed)
        return allowed

    async def _review_token(self, token: str) -> User | None:
        audiences = {"audiences": [self._audience]} if self._audience else {}
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, **audiences},
        }
        review = await self._client.create(TOKEN_REVIEWS, body)
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return None
        # A server that knows nothing of audiences accepts any token and names none of them back.
        if self._audience and self._audience not in (status.get("audiences") or ()):
            return None
        user = status.get("user") or {}
        return User(
            user.get("username", ""),
            user.get("uid", ""),
            tuple(user.get("groups") or ()),
            tuple(sorted((k, tuple(v)) for k, v in (user.get("extra") or {}).items())),
        )


class _Remembered(Generic[K, V]):
    """Answers of the last seconds, a bounded number of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}

    def find(self, key: K) -> tuple[bool, V | None]:
        """Return (whether it is known, the answer)."""
        found = self._entries.get(key)
        if found is None or self._clock() - found[0] >= _REMEMBER_SECONDS:
            return False, None
        return True, found[1]

    def keep(self, key: K, value: V) -> None:
        """Remember an answer; the oldest goes when there are too many."""
        self._entries.pop(key, None)
        if len(self._entries) >= _REMEMBER_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock(), value)
