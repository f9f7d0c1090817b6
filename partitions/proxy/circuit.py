"""domain: a circuit breaker as a state machine: when to call a service that may not answer.

Closed: every call goes through. After `CircuitOptions.failures` calls in a row without an answer it
opens: no call is sent for a pause. Then it is half-open: one call, a question that changes nothing,
tries. An answer closes it, silence opens it for a longer pause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ipuhub.backoff import Backoff
from ipuhub.times import format_time
from partitions.vipu.errors import Unavailable

if TYPE_CHECKING:
    from datetime import datetime

_PAUSE = Backoff(first_seconds=0.25, max_seconds=4.0)


class CircuitOpen(Unavailable):
    """The call was not sent, as the controller has not answered the last ones."""


class CircuitState(StrEnum):
    """Whether calls are sent."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitOptions:
    """After how many calls in a row without an answer to stop calling, and for how long.

    `trial_seconds`: how long the call that tries may take, and all others with it.
    """

    failures: int = 3
    pause: Backoff = _PAUSE
    trial_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class CircuitFacts:
    """What people are told: the state, since when no calls are sent, and when one tries next."""

    state: CircuitState = CircuitState.CLOSED
    since: datetime | None = None
    next_try: datetime | None = None

    @property
    def sentence(self) -> str:
        """Return what to expect, for a place where the problem is told already; "" if closed."""
        if self.since is None:
            return ""
        stopped = f"no calls since {format_time(self.since)}"
        if self.state is CircuitState.HALF_OPEN or self.next_try is None:
            return f"{stopped}, one is trying now"
        return f"{stopped}, next try at {format_time(self.next_try)}"


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state at one moment. Each transition returns the next one.

    `failures`: calls in a row without an answer. `pauses`: since it was closed. `retry_at`: on the
    clock of the caller, in seconds. `term` is another one after each change of `state`: what comes
    of a call of an earlier term says nothing about this one. `is_trying`: the trial is under way.
    """

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    pauses: int = 0
    retry_at: float = 0.0
    term: int = 0
    is_trying: bool = False

    def admits(self, now: float, *, is_question: bool) -> bool:
        """Return whether a call may be sent now.

        Orders try nothing: what is not answered may have been carried out.
        """
        if self.state is CircuitState.CLOSED:
            return True
        return is_question and now >= self.retry_at and not self.is_trying

    def sent(self) -> Self:
        """An admitted call begins."""
        if self.state is CircuitState.CLOSED:
            return self
        if self.state is CircuitState.HALF_OPEN:
            return replace(self, is_trying=True)
        return replace(self, state=CircuitState.HALF_OPEN, is_trying=True, term=self.term + 1)

    def answered(self, term: int) -> Self:
        """A call that began in `term` got an answer, whatever the answer says."""
        if term != self.term:
            return self
        if self.state is CircuitState.CLOSED:
            return replace(self, failures=0)
        return type(self)(term=self.term + 1)

    def failed(self, term: int, now: float, chance: float, options: CircuitOptions) -> Self:
        """A call that began in `term` got none; `chance` is a random number in [0, 1)."""
        if term != self.term or self.state is CircuitState.OPEN:
            return self
        failures = self.failures + 1
        if self.state is CircuitState.CLOSED and failures < options.failures:
            return replace(self, failures=failures)
        return replace(
            self,
            state=CircuitState.OPEN,
            failures=failures,
            pauses=self.pauses + 1,
            retry_at=now + options.pause.delay_seconds(self.pauses, chance),
            term=self.term + 1,
            is_trying=False,
        )

    def given_up(self, term: int) -> Self:
        """A call that began in `term` was ended by us, which proves nothing: another may try."""
        return replace(self, is_trying=False) if term == self.term else self
