"""io: the operator's client of the V-IPU Proxy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode

import aiohttp

from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.partition import partition_from_json, pod_key_from_json
from partitions.errors import ProxyRefused, ProxyUnavailable
from partitions.vipu.telemetry import heartbeat_from_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Self

    from ipuhub.partition import Partition, PodKey
    from partitions.fleetjson import FleetJson
    from partitions.vipu.telemetry import Heartbeat


# Missing access is a state of the cluster to be fixed there, not an error of the request.
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
        self._listed: tuple[Partition, ...] = ()
        self._fleet: tuple[str, FleetJson] = ("", {})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def list(self) -> Sequence[Partition]:
        """Return all partitions and tombstones; entries of one holder in order of creation.

        While nothing changes it is the same object, and costs the proxy almost nothing.
        """
        headers = {"If-None-Match": self._etag} if self._etag else {}
        status, found, etag = await self._send("GET", "/v1/partitions", headers=headers)
        if status != 304:
            self._listed = tuple(_record(item) for item in _items(found))
            self._etag = etag
        return self._listed

    async def ensure(  # the attributes of one request
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> Partition:
        """See to a partition for the attempt; the answer may be that it waits for IPUs."""
        body = {"namespace": namespace, "name": name, "size": size, "attempt": attempt}
        _, found, _ = await self._send("PUT", _path(uid, instance), body)
        return _record(found)

    async def reset(self, uid: str, instance: int, attempt: int) -> Partition:
        """Prepare a clean partition for another attempt; ProxyRefused 404 if there is none."""
        _, found, _ = await self._send(
            "POST", _path(uid, instance) + "/reset", {"attempt": attempt}
        )
        return _record(found)

    async def release(self, uid: str, instance: int) -> Partition | None:
        """Remove the partition; None: the proxy knows of none."""
        try:
            _, found, _ = await self._send("DELETE", _path(uid, instance))
        except ProxyRefused as error:
            if error.status == 404:
                return None
            raise
        return _record(found)

    async def make_key(self, uid: str, instance: int, attempt: int) -> PodKey | None:
        """Make a key for the pods of an active partition, which ends an earlier key; None: they
        need none. ProxyRefused 409 if a key is stored already."""
        _, found, _ = await self._send("POST", _path(uid, instance) + "/key", {"attempt": attempt})
        try:
            return None if found["key"] is None else pod_key_from_json(found["key"])
        except (KeyError, TypeError):
            raise ProxyUnavailable("the V-IPU Proxy's response is not a key") from None

    async def store_key(self, uid: str, instance: int, attempt: int, key_id: str) -> Partition:
        """Say that the pods can use this key; ProxyRefused 409 unless it was made last."""
        body = {"attempt": attempt, "id": key_id}
        _, found, _ = await self._send("PUT", _path(uid, instance) + "/key", body)
        return _record(found)

    async def controllers(self) -> Mapping[str, Any]:
        """The V-IPU controllers: `items`, and `problem` of the list."""
        _, found, _ = await self._send("GET", "/v1/controllers")
        if not isinstance(found, dict):
            raise ProxyUnavailable("the response to /v1/controllers is not an object")
        return found

    async def fleet(self) -> FleetJson:
        """Return `/v1/fleet`: each IPU, its holder, and the queue.

        While nothing changes it is the same object, so do not modify it.
        """
        tag, last = self._fleet
        headers = {"If-None-Match": tag} if tag else {}
        status, found, tag = await self._send("GET", "/v1/fleet", headers=headers)
        if status == 304:
            return last
        if not isinstance(found, dict) or not isinstance(found.get("controllers"), list):
            raise ProxyUnavailable("the response to /v1/fleet has an unknown format")
        self._fleet = tag, cast("FleetJson", found)
        return self._fleet[1]

    async def machine(self, controller: str, agent: str) -> Heartbeat:
        """Return `/v1/fleet/machine`: the last heartbeat of an IPU-Machine's agent."""
        query = urlencode({"controller": controller, "agent": agent})
        _, found, _ = await self._send("GET", f"/v1/fleet/machine?{query}")
        try:
            return heartbeat_from_json(found)
        except (KeyError, TypeError, ValueError):
            raise ProxyUnavailable("the response to /v1/fleet/machine is no heartbeat") from None

    async def stats(self) -> Mapping[str, Any]:
        """IPUs used per namespace, and `total`, as `/stats` gives them; needs no token."""
        found = await self._ask_openly("GET", "/stats")
        if not isinstance(found, dict) or "total" not in found:
            raise ProxyUnavailable("the response to /stats has an unknown format")
        return found

    async def query(self, size: int) -> Mapping[str, Any]:
        """Return how many partitions of `size` fit now (`/query`); needs no token."""
        found = await self._ask_openly("POST", "/query", {"size": size})
        if not isinstance(found, dict) or "numOfPartitions" not in found:
            raise ProxyUnavailable("the response to /query has an unknown format")
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
            silent = isinstance(error, TimeoutError)
            problem = str(error) or ("no answer in time" if silent else type(error).__name__)
            raise ProxyUnavailable(f"the V-IPU Proxy at {self._base_url}: {problem}") from error
        if status >= 400:
            raise _refusal(status, found)
        return status, found, etag


def _path(uid: str, instance: int) -> str:
    return f"/v1/partitions/{uid}/{instance}"


def _items(found: Any) -> list[Any]:
    items = found.get("items") if isinstance(found, dict) else None
    if not isinstance(items, list):
        raise ProxyUnavailable("the response to /v1/partitions has no items")
    return items


def _record(found: Any) -> Partition:
    try:
        return partition_from_json(found)
    except (KeyError, TypeError, ValueError) as error:
        raise ProxyUnavailable(
            f"the V-IPU Proxy's response is not a partition: {error!r}"
        ) from error


def _refusal(status: int, found: Any) -> ProxyUnavailable | ProxyRefused:
    detail = found.get("detail") if isinstance(found, dict) else None
    sentence = str(detail or f"the V-IPU Proxy responded with status {status}")
    if status >= 500 or status in _RETRYABLE:
        return ProxyUnavailable(sentence)
    return ProxyRefused(status, sentence)
