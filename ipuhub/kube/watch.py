"""io: an endless watch that resumes after it breaks off, and reports when it cannot."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import orjson
import structlog

from ipuhub.backoff import Backoff, between, jitter
from ipuhub.kube.client import selector_params
from ipuhub.kube.errors import ApiError, Gone, ServerError, from_answer
from ipuhub.kube.resources import WatchEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Resource

log = structlog.get_logger(__name__)


class Versioned(Protocol):
    """An event, however it is decoded: it knows the version to continue from after it."""

    @property
    def resource_version(self) -> str:
        """The version to continue from after this event."""


E = TypeVar("E", bound=Versioned)


async def _nothing() -> None:
    """Check nothing."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The objects that a watch or cache covers; without a namespace: all namespaces."""

    resource: Resource
    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The times after which a watch gives up a connection, and retries.

    Servers send a bookmark about once a minute, so a longer silence means a dead connection that
    no peer closed. `server_seconds` bounds one connection; it is spread, so that not all watches of
    a process come back at once. A connection that ends in `healthy_seconds` without an event
    counts as a failure, or a server that accepts and closes would be called without a pause.
    """

    backoff: Backoff = field(default_factory=Backoff)
    silence_seconds: float = 70.0
    server_seconds: int = 300
    healthy_seconds: float = 5.0


class Watch:
    """The changes of `scope` after `resource_version`, in order, each exactly once.

    `resource_version` is always the version to continue from; `problem` is why the watch is
    disconnected (empty: it is connected); `on_heard` is called whenever the server sends anything.
    `before_open` runs before each connection; what it raises counts as if the connection had.
    """

    def __init__(
        self,
        client: KubeClient,
        scope: Scope,
        resource_version: str,
        *,
        pace: Pace | None = None,
        on_heard: Callable[[], None] = lambda: None,
        before_open: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.resource_version = resource_version
        self.problem = ""
        self._client = client
        self._scope = scope
        self._pace = pace or Pace()
        self._on_heard = on_heard
        self._before_open = before_open
        self._opened_at: float | None = None

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield events without end, bookmarks included; close the generator to stop.

        Raises Gone when the server no longer knows `resource_version` (list again), and other
        ApiErrors that a retry does not resolve. All other errors are retried with backoff.
        """
        async with aclosing(self.batches(decode_event)) as batches:
            async for batch in batches:
                for event in batch:
                    self.resource_version = event.resource_version
                    if event.type == "BOOKMARK":
                        yield event
                        continue
                    found = self._client.readable(self._scope.resource, event.object)
                    if found is not None:
                        yield WatchEvent(event.type, found)

    async def batches(self, decode: Callable[[bytes], E]) -> AsyncGenerator[list[E], None]:
        """Yield the same events as they arrive together, each line decoded by `decode`.

        For who counts microseconds; `decode` raises ApiError, as `decode_event` does.
        """
        now = asyncio.get_running_loop().time
        failures = 0
        while True:
            self._opened_at, fruitful, error = None, False, None
            try:
                await self._before_open()
                async with aclosing(self._one_connection(decode)) as batches:
                    async for batch in batches:
                        fruitful = True
                        yield batch
            except Gone:
                raise
            except ApiError as caught:
                if not caught.retryable:
                    raise
                error = caught
            healthy = fruitful or self._stayed_open(now())
            failures = 0 if healthy else failures + 1
            if error is not None or not healthy:
                await self._pause(failures, error)

    def _stayed_open(self, now: float) -> bool:
        opened_at = self._opened_at
        return opened_at is not None and now - opened_at >= self._pace.healthy_seconds

    async def _pause(self, failures: int, error: ApiError | None) -> None:
        # One break is routine (a server restarts); what lasts is worth a line, once.
        if failures and not self.problem:
            self.problem = str(error or "the server closes the watch at once")
            log.warning("watch interrupted", resource=self._plural, problem=self.problem)
        spread = jitter()
        pause = self._pace.backoff.delay_seconds(max(failures - 1, 0), spread)
        await asyncio.sleep(max(pause, (error and error.retry_after) or 0.0))

    @property
    def _plural(self) -> str:
        return self._scope.resource.plural

    async def _one_connection(self, decode: Callable[[bytes], E]) -> AsyncGenerator[list[E], None]:
        scope, pace = self._scope, self._pace
        seconds = int(between(0.8, 1.0) * pace.server_seconds)
        params = {
            **selector_params(scope.label_selector, scope.field_selector),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": str(max(seconds, 1)),
        }
        path = scope.resource.path(scope.namespace)
        opening = self._client.stream(scope.resource, path, params, pace.silence_seconds)
        async with opening as chunks:
            self._opened_at = asyncio.get_running_loop().time()
            self._heard()
            async with aclosing(split_batches(chunks)) as batches:
                async for lines in batches:
                    self._heard()
                    events, error = _decode_all(lines, decode)
                    if events:
                        self.resource_version = events[-1].resource_version
                        yield events
                    if error is not None:
                        raise error

    def _heard(self) -> None:
        if self.problem:
            log.info("watch is back", resource=self._plural)
            self.problem = ""
        self._on_heard()


def _decode_all(
    lines: list[bytes], decode: Callable[[bytes], E]
) -> tuple[list[E], ApiError | None]:
    """Decode up to the first line with an error; the lines before it count."""
    events: list[E] = []
    try:
        for line in lines:
            events.append(decode(line))  # noqa: PERF401  # keeps what came before an error
    except ApiError as error:
        return events, error
    return events, None


async def split_batches(chunks: AsyncIterator[bytes]) -> AsyncGenerator[list[bytes], None]:
    """Cut a byte stream into its complete lines; an unfinished last line is dropped.

    Each chunk that completes lines yields them together. Lines have no size limit: an object may
    have 1.5 MB and arrives in hundreds of chunks.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        if b"\n" not in chunk:
            parts.append(chunk)
            continue
        first, *lines, last = chunk.split(b"\n")
        joined = b"".join([*parts, first])
        complete = [line for line in (joined, *lines) if line]
        if complete:
            yield complete
        parts = [last]


def decode_event(line: bytes) -> WatchEvent:
    """Decode one line of a watch. Raises the ApiError that an ERROR event carries."""
    try:
        event = orjson.loads(line)
        kind, subject = event["type"], event["object"]
        if kind == "ERROR":
            raise from_answer(int(subject.get("code") or 500), subject)
        decoded = WatchEvent(kind, subject)
        _ = decoded.resource_version
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ServerError(502, "BadAnswer", f"The watch sent no event: {error!r}") from error
    return decoded
