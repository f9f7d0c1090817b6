"""io: `/healthz` (liveness) and `/readyz` (readiness) of a process, and its HTTP server.

Anybody who can connect can send incomplete requests, many times. So heads and bodies each have a
deadline, and all large bodies share a memory limit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.log import server_logger

from ipuhub.addresses import address_of
from ipuhub.kube.errors import ConfigError
from ipuhub.process.connections import CountedRunner, CountedSite

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from aiohttp.typedefs import Handler, Middleware

_SMALL_BYTES: Final = 64 * 1024
IDLE_SECONDS: Final = (
    120.0  # Go's clients, the API server among them, close idle connections after 90
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of time and size for requests of a client.

    `silence_seconds`: until a head is whole, and between two requests of a connection.
    `body_seconds`: until a body is whole, and for how long a large body waits until there is room
    for it among the `bodies_bytes` of all; bodies of at most 64 KiB do not wait. Without
    `bodies_bytes` (0) the application limits bodies itself. `lingering_seconds`: how long the rest
    of a body is read and discarded after its answer. `connections`: with a request at a time, as
    far as open files allow; above it only probes are answered.
    """

    silence_seconds: float = IDLE_SECONDS
    body_seconds: float = 20.0
    bodies_bytes: int = 32 * 1024 * 1024
    lingering_seconds: float = 2.0
    connections: int = 1000


LIMITS: Final = Limits()


class _OneLine(logging.Filter):
    """Logs an invalid or incomplete HTTP request in one line.

    It is the sender's fault, and senders must not decide how much of the log they fill.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        peer = record.args[0] if isinstance(record.args, tuple) and record.args else "a client"
        if isinstance(error, BadHttpMessage):
            record.msg, record.args = "Rejected a malformed HTTP request from %s", (peer,)
        elif isinstance(error, ConnectionError):
            record.msg, record.args = "A client disconnected during its request: %s", (peer,)
        else:
            return True
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        return True


_FILTER = _OneLine()


def is_client_disconnect(request: web.Request, error: Exception) -> bool:
    """Return whether a request failed only because its client disconnected, which is not an error
    of ours."""
    has_left = request.transport is None or request.transport.is_closing()
    return has_left and isinstance(error, ConnectionError)


def log_bad_requests_in_one_line() -> None:
    """Make every server of this process log invalid HTTP in one line, without a traceback."""
    server_logger.addFilter(_FILTER)  # once, however often it is added


def build_runner(
    app: web.Application,
    *,
    shutdown_seconds: float = 60.0,
    limits: Limits = LIMITS,
    **options: Any,
) -> web.AppRunner:
    """Return a runner that serves `app` within `limits`, without a log line for each request and
    without decompression.

    `options` are aiohttp's. No client sends us compressed bodies, and aiohttp would unpack them
    before their size is checked, and log a traceback for broken ones.
    """
    log_bad_requests_in_one_line()
    app.middlewares.append(_bodies_within(limits))  # the innermost: all others see its refusals
    return CountedRunner(
        app,
        limits.connections,
        access_log=None,
        shutdown_timeout=shutdown_seconds,
        keepalive_timeout=limits.silence_seconds,  # aiohttp begins it with the connection
        lingering_time=limits.lingering_seconds,
        **{"auto_decompress": False} | options,
    )


def _bodies_within(limits: Limits) -> Middleware:
    budget = _Budget(limits.bodies_bytes)

    @web.middleware
    async def bodies_within(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.body_exists or not limits.bodies_bytes:
            return await handler(request)
        is_whole = is_over = has_room = False
        try:
            async with asyncio.timeout(limits.body_seconds) as deadline:

                def note_end() -> None:
                    nonlocal is_whole
                    is_whole = True
                    if not is_over and not deadline.expired():
                        deadline.reschedule(None)

                request.content.on_eof(note_end)
                async with budget.share(_size_of(request, limits)):
                    has_room = True
                    return await handler(request)
        except TimeoutError:
            if is_whole or not deadline.expired():
                raise
            if not has_room:
                sentence = "The server has no space for a body of this size now. Try again."
                raise web.HTTPServiceUnavailable(reason=sentence) from None
            sentence = f"The body did not arrive within {limits.body_seconds:g} s."
            raise web.HTTPRequestTimeout(reason=sentence) from None
        finally:
            is_over = True

    return bodies_within


def _size_of(request: web.Request, limits: Limits) -> int:
    """Return how much memory the body can take: a larger body than allowed is refused anyway."""
    most = request.client_max_size or limits.bodies_bytes // 8
    return min(most if request.content_length is None else request.content_length, most)


class _Budget:
    """Bytes that the bodies of all requests in progress share."""

    def __init__(self, size: int) -> None:
        self._most = self._left = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def share(self, size: int) -> AsyncIterator[None]:
        """Wait until so many are free, and hold them."""
        if size <= _SMALL_BYTES:
            yield
            return
        size = min(size, self._most)
        async with self._changed:
            await self._changed.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            async with self._changed:
                self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class _Beat:
    at: float
    max_age_seconds: float


class Health:
    """The health of a process, as it reports it. `clock` gives seconds that never go back.

    Readiness: each named check must be ok; a failing check takes the process out of service. A note
    stands beside them and fails nothing.
    Liveness: each loop that promised to beat must have; a silent loop gets the process restarted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: dict[str, tuple[bool, str]] = {}
        self._asked: dict[str, Callable[[], str]] = {}
        self._notes: dict[str, str | Callable[[], str]] = {}
        self._beats: dict[str, _Beat] = {}

    def set(self, name: str, ok: bool, detail: str = "") -> None:
        """Set a readiness check; `detail` says what is wrong, for people."""
        self._ready[name] = (ok, detail)

    def note(self, name: str, sentence: str | Callable[[], str]) -> None:
        """Show a message for people although the process works; empty: none. A function is
        evaluated for each request."""
        self._notes[name] = sentence

    def ask(self, name: str, problem: Callable[[], str]) -> None:
        """Add a readiness check that is evaluated for each request; it returns what is wrong, or
        nothing."""
        self._asked[name] = problem

    def beat(self, name: str, max_age_seconds: float = 300.0) -> None:
        """Report that loop `name` works; the first call promises a call at least this often."""
        known = self._beats.get(name)
        allowed = known.max_age_seconds if known else max_age_seconds
        self._beats[name] = _Beat(self._clock(), allowed)

    @contextmanager
    def term(self) -> Iterator[None]:
        """Remove all values, checks and beats of the block at its end.

        A replica that no longer leads must not be restarted because its loops have ended.
        """
        tables: tuple[dict[str, Any], ...] = (self._ready, self._asked, self._notes, self._beats)
        known = [set(checks) for checks in tables]
        try:
            yield
        finally:
            for checks, names in zip(tables, known, strict=True):
                for name in checks.keys() - names:
                    del checks[name]

    def checks(self) -> dict[str, str]:
        """Return what is wrong with each check, or nothing; a loop that beats is `alive <name>`."""
        beats = {f"alive {name}": problem for name, problem in self._silent().items()}
        return self._readiness() | beats

    def not_ready(self) -> list[str]:
        """Return a line for each failing readiness check."""
        return [f"{name}: {detail}" for name, detail in self._readiness().items() if detail]

    def notes(self) -> list[str]:
        """Return a line for each note."""
        texts = {name: note() if callable(note) else note for name, note in self._notes.items()}
        return [f"{name}: {' '.join(note.split())}" for name, note in texts.items() if note]

    def not_alive(self) -> list[str]:
        """Return a line for each loop that has been silent for too long."""
        return [f"{name}: {detail}" for name, detail in self._silent().items() if detail]

    def _readiness(self) -> dict[str, str]:
        stated = {name: "" if ok else detail or "no" for name, (ok, detail) in self._ready.items()}
        found = stated | {name: problem() for name, problem in self._asked.items()}
        # A line for each check, also where a driver or gRPC explains itself in several.
        return {name: " ".join(detail.split()) for name, detail in found.items()}

    def _silent(self) -> dict[str, str]:
        now = self._clock()
        ages = {name: (now - beat.at, beat.max_age_seconds) for name, beat in self._beats.items()}
        return {
            name: f"no sign of life for {age:.0f} s (limit: {allowed:.0f} s)"
            if age > allowed
            else ""
            for name, (age, allowed) in ages.items()
        }

    def routes(self) -> list[web.RouteDef]:
        """The two pages, for a process that has a web server anyway."""

        async def healthz(_: web.Request) -> web.Response:
            return _answer(self.not_alive())

        async def readyz(_: web.Request) -> web.Response:
            return _answer([*self.not_alive(), *self.not_ready()], self.notes())

        return [web.get("/healthz", healthz), web.get("/readyz", readyz)]

    def app(self, more: Iterable[web.RouteDef] = ()) -> web.Application:
        """Return an application of the two pages, with `more` beside them."""
        app = web.Application()
        app.add_routes([*self.routes(), *more])
        return app


class ListenError(ConfigError):
    """An address cannot be listened on."""


@asynccontextmanager
async def listening(
    runner: web.AppRunner,
    host: str,
    port: int,
    setting: str = "",
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve on `port`, 0 for a free port, and yield the port in use.

    Raises ListenError, which names the `setting` that chooses another port.
    """
    await runner.setup()
    try:
        try:
            await CountedSite(runner, host, port, ssl_context).start()
        except OSError as error:
            hint = f" (set {setting})" if setting else ""
            problem = f"cannot listen on {address_of(host, port)}{hint}: {error.strerror}"
            raise ListenError(problem) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answer(failing: Sequence[str], notes: Sequence[str] = ()) -> web.Response:
    if failing:
        return web.Response(status=503, text="\n".join([*failing, *notes]) + "\n")
    return web.Response(text="\n".join(["ok", *notes, ""]) if notes else "ok")
