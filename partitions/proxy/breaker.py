"""io: the circuit breaker around one V-IPU controller, with its clocks, log and metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from ipuhub.backoff import jitter
from partitions.proxy.circuit import (
    Calls,
    CircuitFacts,
    CircuitOpen,
    CircuitOptions,
    Circuits,
)
from partitions.proxy.circuit import CircuitState as State
from partitions.proxy.metrics import CIRCUIT_TRIPS
from partitions.vipu.errors import NoAnswer, NotStored, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from partitions.proxy.circuit import Circuit
    from partitions.proxy.vipuapi import VipuApi

log = structlog.get_logger(__name__)

_ORDERS: Final = {
    "create_partition": Calls.CREATE,
    "reset_partition": Calls.RESET,
    "remove_partition": Calls.REMOVE,
    "create_partition_key": Calls.KEY,
}
_CLOSED: Final = CircuitFacts()
_DEFAULTS: Final = CircuitOptions()
_LOCAL: Final = frozenset({"pod_tls", "close"})  # nothing is sent


class CircuitBreaker:
    """Sends calls to the controller at `address`, or refuses them at once while it is silent.

    Calls without an answer count (NoAnswer), and orders that the controller cannot carry out, as
    while its disk is full (NotStored). A controller that refuses, answers. `clock` is in seconds
    and never goes back; `now` gives the time for people.
    """

    def __init__(
        self,
        address: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        options: CircuitOptions = _DEFAULTS,
    ) -> None:
        self._address = address
        self._clock = clock
        self._now = now
        self._options = options
        self._circuits = Circuits()
        self._facts: dict[Calls, CircuitFacts] = {}  # of those that are not closed
        self._problems: dict[Calls, str] = {}
        self._answers: dict[Calls, str] = {}  # "" where the problem is silence
        self._given_up_in: int | None = None
        for calls in Calls:
            CIRCUIT_TRIPS.labels(address, calls.value)  # 0 is a fact, too: a rate needs it

    @property
    def facts(self) -> CircuitFacts:
        """Return the state of the circuit that users see."""
        if not self._facts:
            return _CLOSED
        orders = tuple(self._judged(calls) for calls in self._facts if calls is not Calls.ALL)
        return replace(self._facts.get(Calls.ALL, _CLOSED), orders=orders)

    def is_doubted(self, calls: Calls = Calls.ALL) -> bool:
        """Return whether the last of these calls got no answer."""
        return self._circuits[calls].failures > 0

    @property
    def problem(self) -> str:
        """Return why no calls at all are sent; "" if they are."""
        if Calls.ALL not in self._facts:
            return ""
        return f"{self._cause(Calls.ALL)}; {self._facts[Calls.ALL].sentence}"

    def refuse(self, calls: Calls = Calls.ALL) -> None:
        """Raise CircuitOpen if a call would not be sent now."""
        refusing = self._circuits.refusing(self._clock(), calls)
        if refusing is not None:
            # It is stored with the partition, where a time of the next try would soon be past.
            raise CircuitOpen(f"{self._cause(refusing)}; {refusing.pause_in_words}")

    def guard(self, api: VipuApi) -> VipuApi:
        """Return `api`, whose calls go through this breaker."""
        return cast("VipuApi", _Guarded(api, self))

    async def call(
        self, method: Callable[..., Awaitable[Any]], *args: Any, calls: Calls, **more: Any
    ) -> Any:
        """Send a call. Raise CircuitOpen, and nothing is sent, or what the call raises."""
        self.refuse(calls)
        self._move(self._circuits.sent(calls))
        term, term_of_all = self._circuits[calls].term, self._circuits[Calls.ALL].term
        is_trying = calls is Calls.ALL and self._circuits[calls].is_trying
        try:
            async with asyncio.timeout(self._options.trial_seconds if is_trying else None):
                answer = await method(*args, **more)
        except (NoAnswer, TimeoutError) as error:
            # Only the trial has a limit here, without words of its own.
            text = str(error) or f"{self._address}: no answer in {self._options.trial_seconds:g} s"
            self._failed(calls, term, text)
            if isinstance(error, NoAnswer):
                raise
            raise NoAnswer(text) from error
        except NotStored as error:
            if calls is Calls.ALL:
                self._move(self._circuits.answered(calls, term, term_of_all))
            else:
                self._failed(calls, term, str(error), is_answer=True)
            raise
        except (Unavailable, asyncio.CancelledError):
            # Our own files, or a caller that waits no longer: not the controller's silence.
            self._move(self._circuits.given_up(calls, term))
            if calls is Calls.ALL:
                self._given_up_in = term
            raise
        except Exception:
            self._move(self._circuits.answered(calls, term, term_of_all))
            raise
        self._move(self._circuits.answered(calls, term, term_of_all))
        return answer

    def note_silence(self, problem: str) -> None:
        """Count a call that the caller has just given up because it took too long, in the term in
        which it began."""
        term, self._given_up_in = self._given_up_in, None
        if term is not None:
            self._failed(Calls.ALL, term, problem)

    def _cause(self, calls: Calls) -> str:
        problem = self._problems[calls]
        return problem if self._address in problem else f"{self._address}: {problem}"

    def _judged(self, calls: Calls) -> CircuitFacts:
        facts, circuit = self._facts[calls], self._circuits[calls]
        is_due = circuit.admits(self._clock())
        return replace(facts, is_due=is_due, answer=self._answers[calls])

    def _failed(self, calls: Calls, term: int, problem: str, *, is_answer: bool = False) -> None:
        if term == self._circuits[calls].term:
            self._problems[calls] = problem
            self._answers[calls] = problem if is_answer else ""
        self._move(self._circuits.failed(calls, term, self._clock(), jitter(), self._options))

    def _move(self, new: Circuits) -> None:
        """Enter the next state, and log transitions."""
        old, self._circuits = self._circuits, new
        if new is old:
            return
        for calls in Calls:
            if new[calls].state is not old[calls].state:
                self._note(calls, old[calls].state, new[calls])
        if new[Calls.ALL].state is not State.CLOSED:
            self._facts = {Calls.ALL: self._facts[Calls.ALL]}

    def _note(self, calls: Calls, before: State, circuit: Circuit) -> None:
        facts = self._facts.pop(calls, _CLOSED)
        where = {"controller": self._address, "calls": calls.value, "state": circuit.state.value}
        if circuit.state is State.CLOSED:
            if self._circuits[Calls.ALL].state is State.CLOSED:  # else nothing has been answered
                log.info("V-IPU controller answers again", **where)
            return
        now, seconds = self._now(), circuit.retry_at - self._clock()
        is_open = circuit.state is State.OPEN
        next_try = now + timedelta(seconds=seconds) if is_open else None
        self._facts[calls] = CircuitFacts(circuit.state, facts.since or now, next_try, calls)
        if not is_open:
            # Each pause ends this way while a controller is unavailable.
            log.debug("trying a V-IPU controller that did not answer", **where)
        elif before is State.CLOSED:
            CIRCUIT_TRIPS.labels(self._address, calls.value).inc()
            log.warning(
                "no calls to a V-IPU controller for a while",
                problem=self._problems[calls],
                failures=circuit.failures,
                pause_seconds=round(seconds, 2),
                **where,
            )
        else:
            log.debug(
                "V-IPU controller still does not answer", pause_seconds=round(seconds, 2), **where
            )


@dataclass(frozen=True, slots=True)
class Connection:
    """A V-IPU controller whose calls go through its breaker."""

    api: VipuApi
    breaker: CircuitBreaker


@dataclass(frozen=True, slots=True)
class _Guarded:
    api: VipuApi
    breaker: CircuitBreaker

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.api, name)
        if name in _LOCAL:
            return method
        return partial(self.breaker.call, method, calls=_ORDERS.get(name, Calls.ALL))
