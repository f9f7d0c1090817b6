"""io: `/healthz` (is it alive) and `/readyz` (can it do its work) of one process."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ipuhub.process.httpserver import build_runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class _Beat:
    at: float
    max_age_seconds: float


class Health:
    """What a process says of itself. `clock` gives seconds that never go back.

    Readiness: each named check must be ok; a failing one takes the process out of service. A note
    stands beside them and fails nothing.
    Liveness: each loop that promised to beat must have; a silent one gets the process restarted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: dict[str, tuple[bool, str]] = {}
        self._asked: dict[str, Callable[[], str]] = {}
        self._notes: dict[str, str] = {}
        self._beats: dict[str, _Beat] = {}

    def set(self, name: str, ok: bool, detail: str = "") -> None:
        """State a readiness check; `detail` says what is wrong, for a person."""
        self._ready[name] = (ok, detail)

    def note(self, name: str, sentence: str) -> None:
        """Show what a person should know though the process does its work; empty: nothing."""
        self._notes[name] = sentence

    def ask(self, name: str, problem: Callable[[], str]) -> None:
        """Add a readiness check that is asked each time; it returns what is wrong, or nothing."""
        self._asked[name] = problem

    def expect_beat(self, name: str, max_age_seconds: float) -> None:
        """Promise that `beat(name)` comes at least this often, from now on."""
        self._beats[name] = _Beat(self._clock(), max_age_seconds)

    def beat(self, name: str, max_age_seconds: float = 300.0) -> None:
        """Say that loop `name` moves; the first beat also makes the promise."""
        known = self._beats.get(name)
        allowed = known.max_age_seconds if known else max_age_seconds
        self._beats[name] = _Beat(self._clock(), allowed)

    @contextmanager
    def term(self) -> Iterator[None]:
        """Forget at the end what was stated, asked for or promised within: a replica that no
        longer leads is not to be restarted because its loops have ended."""
        kept: tuple[dict[str, Any], ...] = (self._ready, self._asked, self._notes, self._beats)
        known = [set(checks) for checks in kept]
        try:
            yield
        finally:
            for checks, names in zip(kept, known, strict=True):
                for name in checks.keys() - names:
                    del checks[name]

    def checks(self) -> dict[str, str]:
        """What is wrong with each check, or nothing; a loop that beats is `alive <name>`."""
        beats = {f"alive {name}": why for name, why in self._silent().items()}
        return self._readiness() | beats

    def not_ready(self) -> list[str]:
        """One line per failing readiness check."""
        return [f"{name}: {detail}" for name, detail in self._readiness().items() if detail]

    def notes(self) -> list[str]:
        """One line per note."""
        return [f"{name}: {sentence}" for name, sentence in self._notes.items() if sentence]

    def not_alive(self) -> list[str]:
        """One line per loop that has not moved for too long."""
        return [f"{name}: {detail}" for name, detail in self._silent().items() if detail]

    def _readiness(self) -> dict[str, str]:
        stated = {name: "" if ok else detail or "no" for name, (ok, detail) in self._ready.items()}
        return stated | {name: problem() for name, problem in self._asked.items()}

    def _silent(self) -> dict[str, str]:
        now = self._clock()
        ages = {name: (now - beat.at, beat.max_age_seconds) for name, beat in self._beats.items()}
        return {
            name: f"silent for {age:.0f} s, allowed are {allowed:.0f}" if age > allowed else ""
            for name, (age, allowed) in ages.items()
        }

    def routes(self) -> list[web.RouteDef]:
        """The two pages, for a process that has a web server anyway."""

        async def healthz(_: web.Request) -> web.Response:
            return _answer(self.not_alive())

        async def readyz(_: web.Request) -> web.Response:
            return _answer([*self.not_alive(), *self.not_ready()], self.notes())

        return [web.get("/healthz", healthz), web.get("/readyz", readyz)]

    async def serve(self, host: str, port: int, more: Iterable[web.RouteDef] = ()) -> web.AppRunner:
        """Listen, with `more` pages beside the two; port 0 takes a free one (`runner.addresses`).

        The caller calls `cleanup`.
        """
        app = web.Application()
        app.add_routes([*self.routes(), *more])
        runner = build_runner(app)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        return runner


def _answer(failing: Sequence[str], notes: Sequence[str] = ()) -> web.Response:
    if failing:
        return web.Response(status=503, text="\n".join([*failing, *notes]) + "\n")
    return web.Response(text="\n".join(["ok", *notes, ""]) if notes else "ok")
