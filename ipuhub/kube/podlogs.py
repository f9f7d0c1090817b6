"""io: the log of a container of one pod, identified by UID: another pod's log is never read.

The name can meanwhile belong to another pod. So the log is opened first and the pod's UID read
afterwards: if the UID is still the expected UID, the open log is that pod's.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipuhub.kube.errors import ApiError, NotFound, Unreachable
from ipuhub.kube.resources import PODS
from ipuhub.times import format_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from datetime import datetime

    from ipuhub.kube.blocking import BlockingKubeClient
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

_SILENCE_SECONDS: Final = 10.0
NOT_THE_POD: Final = "The pod is gone."


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod by name and UID."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class LogRequest:
    """The wanted part of a pod's log. `since`: lines of that second and later."""

    pod: PodRef
    container: str
    previous: bool = False
    tail_lines: int | None = None
    since: datetime | None = None

    def params(self) -> dict[str, str]:
        """Return the API's own parameters."""
        found = {"container": self.container, "timestamps": "true"}
        if self.previous:
            found["previous"] = "true"
        if self.tail_lines is not None:
            found["tailLines"] = str(self.tail_lines)
        if self.since is not None:
            found["sinceTime"] = format_time(self.since)
        return found


async def read_pod(client: KubeClient, pod: PodRef) -> Manifest:
    """Return the pod. Raise NotFound if it, or the pod of this UID, is gone; ApiError."""
    found = await client.get(PODS, pod.name, pod.namespace)
    if found["metadata"].get("uid") != pod.uid:
        raise NotFound(404, "NotFound", NOT_THE_POD)
    return found


@asynccontextmanager
async def open_log(client: KubeClient, wanted: LogRequest) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open the log as the server sends it. Raise NotFound if the pod is gone; ApiError."""
    pod = wanted.pod
    path = PODS.path(pod.namespace, pod.name, "log")
    async with client.read_stream(
        ("get", "pods/log"), path, wanted.params(), _SILENCE_SECONDS
    ) as chunks:
        await read_pod(client, pod)
        yield chunks


class BlockingLog:
    """A log for a thread: an iterator of its bytes, which holds one piece of it at a time.

    The whole reading, opening included, takes at most `seconds`; Unreachable ends a longer reading.
    Close it, or read it to its end.
    """

    def __init__(self, kube: BlockingKubeClient, wanted: LogRequest, seconds: float) -> None:
        self._kube = kube
        self._deadline = kube.run(_now) + seconds
        self._context: Any = open_log(kube.client, wanted)
        self._chunks: AsyncIterator[bytes] | None = kube.run(
            self._bounded, self._context.__aenter__
        )

    def __iter__(self) -> Iterator[bytes]:
        try:
            while self._chunks is not None:
                chunk: bytes | None = self._kube.run(self._bounded, self._chunks.__anext__)
                if chunk is None:
                    break
                yield chunk
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        if self._chunks is not None:
            self._chunks = None
            self._kube.run(_leave, self._context)

    async def _bounded(self, step: Any) -> Any:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await step()
        except StopAsyncIteration:  # a task cannot raise it
            return None
        except TimeoutError as error:
            raise Unreachable("The Kubernetes API did not send the log in time.") from error


async def _now() -> float:
    return asyncio.get_running_loop().time()


async def _leave(context: Any) -> None:
    try:
        await context.__aexit__(None, None, None)
    except ApiError:
        return
