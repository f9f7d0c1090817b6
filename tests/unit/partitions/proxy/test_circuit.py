"""The circuit breaker: which calls it sends, and when it opens, probes and closes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.proxy.circuit import (
    Calls,
    Circuit,
    CircuitFacts,
    CircuitOptions,
    Circuits,
    CircuitState,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
CREATE, RESET, REMOVE = Calls.CREATE, Calls.RESET, Calls.REMOVE
OPTIONS = CircuitOptions()


@dataclass
class Clock:
    """The circuits on a clock by hand; calls begin with `send`, which gives their term."""

    now: float = 100.0
    circuits: Circuits = field(default_factory=Circuits)

    @property
    def circuit(self) -> Circuit:
        return self.circuits[Calls.ALL]

    def may(self, calls: Calls = Calls.ALL) -> bool:
        return self.circuits.refusing(self.now, calls) is None

    def send(self, calls: Calls = Calls.ALL) -> int:
        assert self.may(calls)
        self.circuits = self.circuits.sent(calls)
        return self.circuits[calls].term

    def fail(
        self, term: int | None = None, spread: float = 0.0, *, calls: Calls = Calls.ALL
    ) -> None:
        at = self.send(calls) if term is None else term
        self.circuits = self.circuits.failed(calls, at, self.now, spread, OPTIONS)

    def answer(self, term: int | None = None, *, calls: Calls = Calls.ALL) -> None:
        term_of_all = self.circuit.term
        at = self.send(calls) if term is None else term
        if calls is Calls.ALL:
            term_of_all = at
        self.circuits = self.circuits.answered(calls, at, term_of_all)

    def give_up(self, term: int) -> None:
        self.circuits = self.circuits.given_up(Calls.ALL, term)

    def opened(self, calls: Calls = Calls.ALL) -> Clock:
        for _ in range(OPTIONS.failures):
            self.fail(calls=calls)
        assert self.circuits[calls].state is OPEN
        return self

    def until_due(self, calls: Calls = Calls.ALL) -> Clock:
        self.now = self.circuits[calls].retry_at
        return self


def test_it_opens_after_so_many_failures_in_a_row_and_refuses_everything() -> None:
    clock = Clock()
    clock.fail()
    clock.fail()
    assert clock.circuit.state is CLOSED
    clock.answer()
    clock.fail()
    clock.fail()
    assert clock.circuit.state is CLOSED  # an answer in between: not in a row
    clock.fail()
    assert clock.circuit.state is OPEN
    assert not clock.may()
    assert not clock.may(CREATE)


def test_one_question_tries_after_the_pause_and_no_order_does() -> None:
    clock = Clock().opened()
    clock.now = clock.circuit.retry_at - 0.001
    assert not clock.may()
    clock.until_due()
    assert not clock.may(CREATE)
    clock.send()
    assert clock.circuit.state is HALF_OPEN
    clock.now += 60
    assert not clock.may()  # only a single trial
    assert not clock.may(CREATE)


def test_an_answer_to_the_trial_lets_everything_through_again() -> None:
    clock = Clock().opened().until_due()
    clock.answer()
    assert clock.circuit.state is CLOSED
    assert clock.may(CREATE)
    clock.fail()
    clock.fail()
    assert clock.circuit.state is CLOSED  # counted from the beginning


def test_the_pauses_grow_up_to_a_bound_and_begin_anew_after_an_answer() -> None:
    clock = Clock().opened()
    pauses = [clock.circuit.retry_at - clock.now]
    for _ in range(6):
        clock.until_due().fail()
        pauses.append(clock.circuit.retry_at - clock.now)
    assert pauses == pytest.approx([0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0])
    clock.until_due().fail(spread=0.999)
    assert 3.9 < clock.circuit.retry_at - clock.now < 4.0  # spread over a factor of two
    clock.until_due().answer()
    assert clock.opened().circuit.retry_at - clock.now == pytest.approx(0.25)


def test_a_trial_that_was_given_up_leaves_the_place_to_another() -> None:
    clock = Clock().opened().until_due()
    clock.give_up(clock.send())
    assert clock.circuit.state is HALF_OPEN
    clock.answer()
    assert clock.circuit.state is CLOSED


def test_calls_of_before_say_nothing_about_the_present() -> None:
    clock = Clock()
    old = [clock.send() for _ in range(9)]
    for term in old[:3]:
        clock.fail(term)
    assert clock.circuit.state is OPEN
    until = clock.circuit.retry_at
    clock.fail(old[3])
    assert clock.circuit.retry_at == until  # no longer pause
    clock.answer(old[4])
    assert clock.circuit.state is OPEN
    clock.until_due().answer()
    for term in old[5:]:
        clock.fail(term)
    assert clock.circuit == Circuit(term=clock.circuit.term)


def test_a_kind_of_order_is_counted_by_itself_whatever_else_is_answered_meanwhile() -> None:
    clock = Clock()
    for _ in range(OPTIONS.failures):
        clock.answer()
        clock.answer(calls=REMOVE)
        clock.fail(calls=CREATE)
    assert [clock.circuits[calls].state for calls in (Calls.ALL, CREATE)] == [CLOSED, OPEN]
    assert [clock.may(calls) for calls in (Calls.ALL, REMOVE, RESET, CREATE)] == [True] * 3 + [
        False
    ]


def test_an_answered_order_ends_the_count_of_its_kind() -> None:
    clock = Clock()
    for _ in range(3):
        clock.fail(calls=CREATE)
        clock.fail(calls=CREATE)
        clock.answer(calls=CREATE)
    assert clock.circuits[CREATE].state is CLOSED


def test_one_order_of_the_kind_tries_after_a_pause_that_grows_to_a_minute() -> None:
    clock = Clock().opened(CREATE)
    pauses = [clock.circuits[CREATE].retry_at - clock.now]
    clock.answer()
    assert not clock.may(CREATE)  # a list shows nothing about creations
    for _ in range(5):
        term = clock.until_due(CREATE).send(CREATE)
        assert not clock.may(CREATE)
        assert clock.may()
        clock.fail(term, calls=CREATE)
        pauses.append(clock.circuits[CREATE].retry_at - clock.now)
    assert pauses == pytest.approx([2.0, 4.0, 8.0, 16.0, 30.0, 30.0])
    clock.until_due(CREATE).answer(calls=CREATE)
    assert clock.circuits[CREATE].state is CLOSED
    assert clock.may(CREATE)


def test_a_service_that_answers_nothing_explains_its_orders_which_begin_anew() -> None:
    clock = Clock().opened(CREATE)
    term = clock.send(REMOVE)
    clock.opened().until_due()
    assert not clock.may(CREATE)
    clock.answer()
    assert clock.may(CREATE)
    clock.fail(term, calls=REMOVE)  # sent before
    clock.fail(calls=REMOVE)
    clock.fail(calls=REMOVE)
    assert clock.circuits[REMOVE].state is CLOSED


def test_people_read_since_when_and_when_it_tries_next() -> None:
    since = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
    later = since.replace(second=4)
    assert CircuitFacts().sentence == ""
    assert CircuitFacts(OPEN, since, later).sentence == (
        "no calls since 2026-11-21T08:00:00Z, next try at 2026-11-21T08:00:04Z"
    )
    assert CircuitFacts(HALF_OPEN, since).sentence == (
        "no calls since 2026-11-21T08:00:00Z, a trial is under way"
    )
    orders = CircuitFacts(OPEN, since, later, CREATE), CircuitFacts(HALF_OPEN, since, calls=REMOVE)
    assert CircuitFacts(orders=orders).held_orders == (
        "no answer to creations: no creations since 2026-11-21T08:00:00Z, "
        "next try not before 2026-11-21T08:00:04Z; "
        "no answer to removals: no removals since 2026-11-21T08:00:00Z, a trial is under way"
    )
    failing = CircuitFacts(HALF_OPEN, since, calls=REMOVE, answer="the disk is full")
    assert CircuitFacts(orders=(failing,)).held_orders == (
        "removals fail: the disk is full: no removals since 2026-11-21T08:00:00Z, "
        "a trial is under way"
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "answered", "failed", "given_up", "wait"]),
        st.integers(0, 5),
        st.floats(0, 6),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_one_call_tries_at_a_time_and_some_call_may_within_the_bound(
    steps: list[tuple[str, int, float]],
) -> None:
    clock, running = Clock(), list[tuple[int, bool]]()
    for what, number, seconds in steps:
        if what == "wait":
            clock.now += seconds
        elif what == "begin":
            if clock.may():
                running.append((clock.send(), clock.circuit.is_trying))
        elif running:
            term, _ = running.pop(number % len(running))
            if what == "failed":
                clock.fail(term, spread=seconds / 6.1)
            else:
                {"answered": clock.answer, "given_up": clock.give_up}[what](term)
        trials = [term for term, is_trial in running if is_trial and term == clock.circuit.term]
        assert len(trials) == clock.circuit.is_trying
        later = clock.now + OPTIONS.pause.max_seconds
        assert clock.circuit.is_trying or clock.circuit.admits(later)
