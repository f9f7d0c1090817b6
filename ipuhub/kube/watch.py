"""io: an endless watch that resumes where it broke off, and says when it cannot."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
import structlog

from ipuhub.backoff import Backoff
from ipuhub.chance import between, jitter
from ipuhub.kube.client import selector_params
from ipuhub.kube.errors import ApiError, Gone, ServerError, from_answer
from ipuhub.kube.types import WatchEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Resource

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a watch or cache covers; no namespace means all of them."""

    resource: Resource
    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a watch gives up on a connection, and how it comes back.

    Servers send a bookmark about once a minute, so a longer silence means a dead connection that
    nobody closed. `server_seconds` bounds one connection; it is spread, so that not all watches of
    a process come back at once. A connection that ends in `healthy_seconds` without an event
    counts as a failure, or a server that accepts and closes would be called without a pause.
    """

    backoff: Backoff = field(default_factory=Backoff)
    silence_seconds: float = 70.0
    server_seconds: int = 300
    healthy_seconds: float = 5.0


class Watch:
    """The changes of `scope` after `resource_version`, in order, each exactly once.

    `resource_version` is always the version to continue from; `problem` says what keeps the watch
    from the server now (empty: nothing); `on_heard` is called at every sign of life.
    """

    def __init__(
        self,
        client: KubeClient,
        scope: Scope,
        resource_version: str,
        *,
        pace: Pace | None = None,
        on_heard: Callable[[], None] = lambda: None,
    ) -> None:
        self.resource_version = resource_version
        self.problem = ""
        self._client = client
        self._scope = scope
        self._pace = pace or Pace()
        self._on_heard = on_heard
        self._opened_at: float | None = None

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield events for ever, bookmarks included; close the generator to stop.

        Raises Gone when the server no longer knows `resource_version` (list again), and other
        ApiErrors that waiting does not cure. The rest is waited out with backoff.
        """
        now = asyncio.get_running_loop().time
        failures = 0
        while True:
            self._opened_at, fruitful, error = None, False, None
            try:
                async with aclosing(self._one_connection()) as events:
                    async for event in events:
                        fruitful = True
                        yield event
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
        chance = jitter()
        pause = self._pace.backoff.delay_seconds(max(failures - 1, 0), chance)
        await asyncio.sleep(max(pause, (error and error.retry_after) or 0.0))

    @property
    def _plural(self) -> str:
        return self._scope.resource.plural

    async def _one_connection(self) -> AsyncGenerator[WatchEvent, None]:
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
            async with aclosing(split_lines(chunks)) as lines:
                async for line in lines:
                    self._heard()
                    event = decode_event(line)
                    self.resource_version = event.resource_version
                    yield event

    def _heard(self) -> None:
        if self.problem:
            log.info("watch is back", resource=self._plural)
            self.problem = ""
        self._on_heard()


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Cut a byte stream into its complete lines; an unfinished last line is dropped.

    Lines have no size limit: an object may have 1.5 MB and arrives in hundreds of chunks.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        for piece in rest:
            line = b"".join(parts)
            if line:
                yield line
            parts = [piece]


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
