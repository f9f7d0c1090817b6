"""io: the circuit breaker around one V-IPU controller, with its clocks, log and metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from ipuhub.backoff import jitter
from partitions.proxy.circuit import Circuit, CircuitFacts, CircuitOpen, CircuitOptions
from partitions.proxy.circuit import CircuitState as State
from partitions.proxy.metrics import CIRCUIT_TRIPS
from partitions.vipu.errors import NoAnswer, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from partitions.proxy.vipuapi import VipuApi

log = structlog.get_logger(__name__)

_QUESTIONS: Final = frozenset({"list_partitions", "list_ipu_attributes", "partition_status"})
_DEFAULTS: Final = CircuitOptions()
_LOCAL: Final = frozenset({"pod_tls", "close"})  # nothing is sent


class CircuitBreaker:
    """Sends calls to the controller at `address`, or refuses them at once while it is silent.

    Only calls without an answer count (NoAnswer): a controller that refuses, answers. `clock` is in
    seconds and never goes back; `now` gives the time for people.
    """

    def __init__(
        self,
        address: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        options: CircuitOptions = _DEFAULTS,
    ) -> None:
        self.facts = CircuitFacts()
        self._address = address
        self._clock = clock
        self._now = now
        self._options = options
        self._circuit = Circuit()
        self._problem = ""
        CIRCUIT_TRIPS.labels(address)  # 0 is a fact, too: a rate needs it

    @property
    def is_doubted(self) -> bool:
        """Whether the last call got no answer."""
        return self._circuit.failures > 0

    @property
    def problem(self) -> str:
        """Why calls are refused; "" if they are not."""
        if self._circuit.state is State.CLOSED:
            return ""
        said = f"{self._problem}; {self.facts.sentence}"
        return said if self._address in said else f"{self._address}: {said}"

    def refuse(self, *, is_question: bool) -> None:
        """Raise CircuitOpen if a call would not be sent now."""
        if not self._circuit.admits(self._clock(), is_question=is_question):
            raise CircuitOpen(self.problem)

    def guard(self, api: VipuApi) -> VipuApi:
        """Return `api`, whose calls go through this breaker."""
        return cast("VipuApi", _Guarded(api, self))

    async def call(
        self, method: Callable[..., Awaitable[Any]], *args: Any, is_question: bool, **more: Any
    ) -> Any:
        """Send a call. Raise CircuitOpen, and nothing is sent, or what the call raises."""
        self.refuse(is_question=is_question)
        self._move(self._circuit.sent())
        term = self._circuit.term
        seconds = self._options.trial_seconds if self._circuit.is_trying else None
        try:
            async with asyncio.timeout(seconds):
                answer = await method(*args, **more)
        except (NoAnswer, TimeoutError) as error:
            # Only the trial has a limit here, without words of its own.
            why = str(error) or f"{self._address}: no answer in {self._options.trial_seconds:g} s"
            self._failed(term, why)
            if isinstance(error, NoAnswer):
                raise
            raise NoAnswer(why) from error
        except (Unavailable, asyncio.CancelledError):
            # Our own files, or a caller that waits no longer: not the controller's silence.
            self._move(self._circuit.given_up(term))
            raise
        except Exception:
            self._move(self._circuit.answered(term))
            raise
        self._move(self._circuit.answered(term))
        return answer

    def note_silence(self, problem: str) -> None:
        """Count a call that the caller gave up because it took too long."""
        self._failed(self._circuit.term, problem)

    def _failed(self, term: int, problem: str) -> None:
        if term == self._circuit.term:
            self._problem = problem
        self._move(self._circuit.failed(term, self._clock(), jitter(), self._options))

    def _move(self, new: Circuit) -> None:
        """Take the next state, and tell of a transition."""
        old, self._circuit = self._circuit, new
        if new.state is old.state:
            return
        self.facts = self._facts()
        where = {"controller": self._address, "state": new.state.value}
        if new.state is State.CLOSED:
            log.info("V-IPU controller answers again", **where)
        elif old.state is State.CLOSED:
            CIRCUIT_TRIPS.labels(self._address).inc()
            log.warning(
                "V-IPU controller does not answer, no calls for a while",
                problem=self._problem,
                failures=new.failures,
                pause_seconds=round(new.retry_at - self._clock(), 2),
                **where,
            )
        elif new.state is State.OPEN:
            seconds = round(new.retry_at - self._clock(), 2)
            log.info("V-IPU controller still does not answer", pause_seconds=seconds, **where)
        else:
            log.info("trying a V-IPU controller that did not answer", **where)

    def _facts(self) -> CircuitFacts:
        circuit = self._circuit
        if circuit.state is State.CLOSED:
            return CircuitFacts()
        now = self._now()
        is_open = circuit.state is State.OPEN
        left = timedelta(seconds=circuit.retry_at - self._clock())
        return CircuitFacts(circuit.state, self.facts.since or now, now + left if is_open else None)


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
        return partial(self.breaker.call, method, is_question=name in _QUESTIONS)
