"""io: asks the V-IPU Proxy for partitions, on behalf of the operator.

A partition as the V-IPU Proxy's answers describe it, and as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from ipuhub.kube.errors import ApiError, ConfigError
from partitions.errors import ProxyRefused, ProxyUnavailable
from partitions.proxy.lifecycle import Phase, Reason
from partitions.proxy.tracker import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Self

    from partitions.proxy.controllers import Shortage
    from partitions.proxy.lifecycle import Request, TrackerEntry


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One partition of a job. `needed` and `free` count IPUs, for phase `waiting` only.

    `node_selector` is what pods must carry to reach the partition; `key` names this holding of it
    and is what a recorder acknowledges; times are aware UTC. `lost_at`: since when the partition
    is known to be gone, with the reason in `message`; `release_error`: why the controller does not
    remove it, in its words.
    """

    uid: str
    namespace: str
    name: str
    instance: int
    attempt: int
    id: str
    size: int
    phase: str
    controller: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    needed: int | None = None
    free: int | None = None
    reserved_at: datetime | None = None
    active_at: datetime | None = None
    released_at: datetime | None = None
    key: str = ""
    lost_at: datetime | None = None
    release_error: str = ""


def record_of(entry: TrackerEntry) -> PartitionRecord:
    """The record of a tracked partition."""
    label, _, value = entry.label.partition("=")
    return PartitionRecord(
        uid=entry.uid,
        namespace=entry.namespace,
        name=entry.name,
        instance=entry.instance,
        attempt=entry.attempt,
        id=entry.id,
        size=entry.size,
        phase=entry.phase.value,
        controller=entry.controller,
        node_selector={label: value} if label else {},
        reason=entry.reason,
        message=entry.message,
        reserved_at=entry.reserved_at,
        active_at=entry.active_at,
        released_at=entry.released_at,
        key=entry.key,
        lost_at=entry.lost_at,
        release_error=release_error(entry),
    )


def release_error(entry: TrackerEntry) -> str:
    """Why the controller does not remove the partition, in its words; "" where it does."""
    is_refused = entry.phase is Phase.RELEASING and entry.reason == Reason.RELEASE_REFUSED
    return entry.message if is_refused else ""


def waiting_record(asked: Request | TrackerEntry, shortage: Shortage) -> PartitionRecord:
    """The answer to a request that finds no room now; nothing of it is stored."""
    return PartitionRecord(
        uid=asked.uid,
        namespace=asked.namespace,
        name=asked.name,
        instance=asked.instance,
        attempt=asked.attempt,
        id="",
        size=asked.size,
        phase=Phase.WAITING.value,
        reason=shortage.reason.value,
        message=shortage.message,
        needed=asked.size,
        free=shortage.free,
    )


def record_to_json(record: PartitionRecord) -> dict[str, Any]:
    """The record in camelCase, times as RFC 3339 in UTC or null."""
    return {
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "instance": record.instance,
        "attempt": record.attempt,
        "id": record.id,
        "size": record.size,
        "phase": record.phase,
        "controller": record.controller,
        "nodeSelector": dict(record.node_selector),
        "reason": record.reason,
        "message": record.message,
        "needed": record.needed,
        "free": record.free,
        "reservedAt": format_time(record.reserved_at),
        "activeAt": format_time(record.active_at),
        "releasedAt": format_time(record.released_at),
        "key": record.key,
        "lostAt": format_time(record.lost_at),
        "releaseError": record.release_error,
    }


def record_from_json(found: Mapping[str, Any]) -> PartitionRecord:
    """Read what `record_to_json` wrote; raises ValueError, KeyError or TypeError."""
    return PartitionRecord(
        uid=found["uid"],
        namespace=found["namespace"],
        name=found["name"],
        instance=found["instance"],
        attempt=found["attempt"],
        id=found["id"],
        size=found["size"],
        phase=found["phase"],
        controller=found["controller"],
        node_selector=dict(found["nodeSelector"]),
        reason=found["reason"],
        message=found["message"],
        needed=found["needed"],
        free=found["free"],
        reserved_at=parse_time(found["reservedAt"]),
        active_at=parse_time(found["activeAt"]),
        released_at=parse_time(found["releasedAt"]),
        key=found.get("key", ""),
        lost_at=parse_time(found.get("lostAt")),
        release_error=found.get("releaseError", ""),
    )


__all__ = ["PartitionRecord", "ProxyClient"]
# No access is a state of the cluster that somebody will mend, not a fault of the request.
_RETRYABLE: Final = frozenset({401, 403, 408, 429})


class ProxyClient:
    """The proxy at `base_url`; `token` gives a token of audience ipuhub-proxy.

    Every method raises ProxyUnavailable (retryable) or ProxyRefused. Use as an async context
    manager, or call `close`.
    """

    def __init__(
        self,
        base_url: str,
        token: Callable[[], Awaitable[str]],
        *,
        timeout_seconds: float = 10,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._etag = ""
        self._listed: tuple[PartitionRecord, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def list(self) -> Sequence[PartitionRecord]:
        """All partitions and tombstones; those of one holder in the order of their making.

        While nothing changes it is the very same object, and costs the proxy next to nothing.
        """
        headers = {"If-None-Match": self._etag} if self._etag else {}
        status, found, etag = await self._send("GET", "/v1/partitions", headers=headers)
        if status != 304:
            self._listed = tuple(_record(item) for item in _items(found))
            self._etag = etag
        return self._listed

    async def ensure(  # the attributes of one request
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> PartitionRecord:
        """See to a partition for the attempt; the answer may be that it waits for IPUs."""
        body = {"namespace": namespace, "name": name, "size": size, "attempt": attempt}
        _, found, _ = await self._send("PUT", _path(uid, instance), body)
        return _record(found)

    async def reset(self, uid: str, instance: int, attempt: int) -> PartitionRecord:
        """See to a clean partition for another attempt; ProxyRefused 404 when there is none."""
        _, found, _ = await self._send(
            "POST", _path(uid, instance) + "/reset", {"attempt": attempt}
        )
        return _record(found)

    async def release(self, uid: str, instance: int) -> PartitionRecord | None:
        """Remove the partition; None: the proxy knows of none."""
        try:
            _, found, _ = await self._send("DELETE", _path(uid, instance))
        except ProxyRefused as error:
            if error.status == 404:
                return None
            raise
        return _record(found)

    async def controllers(self) -> Mapping[str, Any]:
        """The V-IPU controllers: `items`, and `problem` of the list."""
        _, found, _ = await self._send("GET", "/v1/controllers")
        if not isinstance(found, dict):
            raise ProxyUnavailable("the answer to /v1/controllers is no object")
        return found

    async def stats(self) -> Mapping[str, Any]:
        """IPUs used per namespace, and `total`, as `/stats` gives them; needs no token."""
        found = await self._ask_openly("GET", "/stats")
        if not isinstance(found, dict) or "total" not in found:
            raise ProxyUnavailable("the answer to /stats is no statistics")
        return found

    async def query(self, size: int) -> Mapping[str, Any]:
        """How many partitions of `size` fit now, as `/query` says it; needs no token."""
        found = await self._ask_openly("POST", "/query", {"size": size})
        if not isinstance(found, dict) or "numOfPartitions" not in found:
            raise ProxyUnavailable("the answer to /query is no count of partitions")
        return found

    async def acknowledge(self, names: Sequence[str]) -> None:
        """Say that these records (by `key`, or by job UID) are stored."""
        await self._send("POST", "/v1/recorded", {"uids": [*names]})

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any, str]:
        """Return (status, decoded body, ETag)."""
        try:
            authorization = {"Authorization": f"Bearer {await self._token()}"}
        except (ApiError, ConfigError) as error:
            raise ProxyUnavailable(f"no token for the V-IPU Proxy: {error}") from error
        return await self._exchange(method, path, body, {**authorization, **(headers or {})})

    async def _ask_openly(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send without a token, so that the answer does not depend on the API server."""
        return (await self._exchange(method, path, body, {}))[1]

    async def _exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> tuple[int, Any, str]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        url = self._base_url + path
        try:
            async with self._session.request(method, url, json=body, headers=headers) as answer:
                text = await answer.text()
                found = json.loads(text) if text else None
                status, etag = answer.status, answer.headers.get("ETag", "")
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise ProxyUnavailable(f"the V-IPU Proxy at {self._base_url}: {why}") from error
        if status >= 400:
            raise _refusal(status, found)
        return status, found, etag


def _path(uid: str, instance: int) -> str:
    return f"/v1/partitions/{uid}/{instance}"


def _items(found: Any) -> list[Any]:
    items = found.get("items") if isinstance(found, dict) else None
    if not isinstance(items, list):
        raise ProxyUnavailable("the answer to /v1/partitions has no items")
    return items


def _record(found: Any) -> PartitionRecord:
    try:
        return record_from_json(found)
    except (KeyError, TypeError, ValueError) as error:
        raise ProxyUnavailable(f"the V-IPU Proxy's answer is no partition: {error!r}") from error


def _refusal(status: int, found: Any) -> ProxyUnavailable | ProxyRefused:
    detail = found.get("detail") if isinstance(found, dict) else None
    sentence = str(detail or f"the V-IPU Proxy answered {status}")
    if status >= 500 or status in _RETRYABLE:
        return ProxyUnavailable(sentence)
    return ProxyRefused(status, sentence)
