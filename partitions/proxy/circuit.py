"""domain: a circuit breaker as a state machine: when to call a service that may not answer.

Closed: every call is sent. After `CircuitOptions.failures` consecutive calls without an answer it
opens: no call is sent for a pause. Then it is half-open: one call is tried. An answer closes it; a
timeout opens it for a longer pause.

A service that answers reads may still not answer writes, or only some kinds of writes. So each kind
of write has its own circuit beside the circuit of all calls (`Circuits`), and answers to reads do
not affect it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from ipuhub.backoff import Backoff
from ipuhub.times import format_time
from partitions.vipu.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_PAUSE = Backoff(first_seconds=0.25, max_seconds=4.0)
# Longer: each try costs a job the time until the deadline of its call.
_ORDER_PAUSE = Backoff(first_seconds=2.0, max_seconds=60.0)


class CircuitOpen(Unavailable):
    """The call was not sent, as the controller has not answered the last calls."""


class Calls(StrEnum):
    """The calls that a circuit stands for: all of them, or one kind of order."""

    ALL = "all"
    CREATE = "create"
    RESET = "reset"
    REMOVE = "remove"
    KEY = "key"

    @property
    def pause_in_words(self) -> str:
        """Return in words which calls are not sent while the circuit is open."""
        return f"no {_NOUNS[self]} for a while"


_NOUNS: Final = {
    Calls.ALL: "calls",
    Calls.CREATE: "creations",
    Calls.RESET: "resets",
    Calls.REMOVE: "removals",
    Calls.KEY: "new keys",
}


class CircuitState(StrEnum):
    """The states of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitOptions:
    """After how many calls in a row without an answer to stop calling, and for how long.

    `trial_seconds`: how long a question that tries may take, since all other calls wait for it. An
    order that tries has its usual deadline.
    """

    failures: int = 3
    pause: Backoff = _PAUSE
    order_pause: Backoff = _ORDER_PAUSE
    trial_seconds: float = 3.0

    def pause_of(self, calls: Calls) -> Backoff:
        """Return the pauses of one circuit."""
        return self.pause if calls is Calls.ALL else self.order_pause


@dataclass(frozen=True, slots=True)
class CircuitFacts:
    """The facts that messages name: the state, since when no calls are sent, and when one tries
    next.

    `orders`: the same of the kinds of order that are not sent although questions are. `is_due`: the
    next order of this kind may try. `answer`: the controller's words, where it answers an order and
    cannot carry it out.
    """

    state: CircuitState = CircuitState.CLOSED
    since: datetime | None = None
    next_try: datetime | None = None
    calls: Calls = Calls.ALL
    is_due: bool = False
    answer: str = ""
    orders: tuple[CircuitFacts, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the outlook, for messages that already have the problem; "" if closed."""
        if self.since is None:
            return ""
        stopped = f"no {_NOUNS[self.calls]} since {format_time(self.since)}"
        if self.state is CircuitState.HALF_OPEN or self.next_try is None:
            return f"{stopped}, a trial is under way"
        when = "at" if self.calls is Calls.ALL else "not before"
        return f"{stopped}, next try {when} {format_time(self.next_try)}"

    @property
    def held_orders(self) -> str:
        """Return which orders are not sent, why, and what to expect; "" if all are."""
        return "; ".join(f"{order.failure}: {order.sentence}" for order in self.orders)

    @property
    def failure(self) -> str:
        """Return what becomes of the calls that are sent."""
        noun = _NOUNS[self.calls]
        return f"{noun} fail: {self.answer}" if self.answer else f"no answer to {noun}"

    def of(self, calls: Calls) -> CircuitFacts:
        """Return the facts of one kind of order; closed if it is sent."""
        return next((order for order in self.orders if order.calls is calls), _CLOSED)


_CLOSED: Final = CircuitFacts()


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state at one moment. Each transition returns the next state.

    `failures`: calls in a row without an answer. `pauses`: since it was closed. `retry_at`: on the
    clock of the caller, in seconds. `term` is new after each change of `state`: what comes
    of a call of an earlier term says nothing about this term. `is_trying`: the trial is under way.
    """

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    pauses: int = 0
    retry_at: float = 0.0
    term: int = 0
    is_trying: bool = False

    def admits(self, now: float, *, may_try: bool = True) -> bool:
        """Return whether a call may be sent now; `may_try`: also as the trial."""
        if self.state is CircuitState.CLOSED:
            return True
        return may_try and now >= self.retry_at and not self.is_trying

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
            return replace(self, failures=0) if self.failures else self
        return type(self)(term=self.term + 1)

    def failed(self, term: int, most: int, retry_at: float) -> Self:
        """A call that began in `term` got none; `most` in a row open it until `retry_at`."""
        if term != self.term or self.state is CircuitState.OPEN:
            return self
        failures = self.failures + 1
        if self.state is CircuitState.CLOSED and failures < most:
            return replace(self, failures=failures)
        return replace(
            self,
            state=CircuitState.OPEN,
            failures=failures,
            pauses=self.pauses + 1,
            retry_at=retry_at,
            term=self.term + 1,
            is_trying=False,
        )

    def given_up(self, term: int) -> Self:
        """A call that began in `term` was ended by us, which proves nothing: another may try."""
        return replace(self, is_trying=False) if term == self.term else self

    def forgotten(self) -> Self:
        """Forget all earlier calls: closed, in a new term."""
        return type(self)(term=self.term + 1)


_NEW: Final = MappingProxyType({calls: Circuit() for calls in Calls})


@dataclass(frozen=True, slots=True)
class Circuits:
    """The circuit of all calls, for which questions count, and one for each kind of order.

    An order is sent if both admit it, and only its own kind lets it try: an order that is not
    answered may have been carried out, so a silent service is tried with a question. What is
    ordered again while its own circuit is half-open was ordered before, or is a creation that
    fits nowhere else.
    """

    by_calls: Mapping[Calls, Circuit] = field(default_factory=lambda: _NEW)

    def __getitem__(self, calls: Calls) -> Circuit:
        return self.by_calls[calls]

    def refusing(self, now: float, calls: Calls) -> Calls | None:
        """Return which circuit does not let such a call through now; None: it may be sent."""
        kinds = (Calls.ALL, calls)
        return next(
            (each for each in kinds if not self[each].admits(now, may_try=each is calls)), None
        )

    def sent(self, calls: Calls) -> Self:
        """An admitted call begins."""
        return self._with({calls: self[calls].sent()})

    def answered(self, calls: Calls, term: int, term_of_all: int) -> Self:
        """A call got an answer, whatever the answer says; the terms are those in which it began."""
        all_calls = self[Calls.ALL].answered(term_of_all)
        return self._with({Calls.ALL: all_calls, calls: self[calls].answered(term)})

    def failed(
        self, calls: Calls, term: int, now: float, spread: float, options: CircuitOptions
    ) -> Self:
        """Record that a call got no answer; `spread` is a random number in [0, 1).

        Once no call is answered at all, that explains the orders, too: their count starts again.
        """
        old = self[calls]
        pause = options.pause_of(calls).delay_seconds(old.pauses, spread)
        new = old.failed(term, options.failures, now + pause)
        changed = {calls: new}
        opens = old.state is CircuitState.CLOSED and new.state is CircuitState.OPEN
        if opens and calls is Calls.ALL:
            changed |= {each: self[each].forgotten() for each in Calls if each is not Calls.ALL}
        return self._with(changed)

    def given_up(self, calls: Calls, term: int) -> Self:
        """A call was ended by us, which proves nothing."""
        return self._with({calls: self[calls].given_up(term)})

    def _with(self, changed: Mapping[Calls, Circuit]) -> Self:
        if all(circuit is self[calls] for calls, circuit in changed.items()):
            return self
        return type(self)({**self.by_calls, **changed})
