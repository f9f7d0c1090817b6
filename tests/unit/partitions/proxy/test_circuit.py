"""The circuit breaker: which calls it sends, when it opens, tries, and closes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.proxy.circuit import Circuit, CircuitFacts, CircuitOptions, CircuitState

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
OPTIONS = CircuitOptions()


@dataclass
class Clock:
    """A circuit on a clock by hand; calls begin with `send`, which gives their term."""

    now: float = 100.0
    circuit: Circuit = field(default_factory=Circuit)

    def may(self, *, is_question: bool = True) -> bool:
        return self.circuit.admits(self.now, is_question=is_question)

    def send(self) -> int:
        assert self.may()
        self.circuit = self.circuit.sent()
        return self.circuit.term

    def fail(self, term: int | None = None, chance: float = 0.0) -> None:
        at = self.send() if term is None else term
        self.circuit = self.circuit.failed(at, self.now, chance, OPTIONS)

    def answer(self, term: int | None = None) -> None:
        at = self.send() if term is None else term
        self.circuit = self.circuit.answered(at)

    def give_up(self, term: int) -> None:
        self.circuit = self.circuit.given_up(term)

    def opened(self) -> Clock:
        for _ in range(OPTIONS.failures):
            self.fail()
        assert self.circuit.state is OPEN
        return self

    def until_due(self) -> Clock:
        self.now = self.circuit.retry_at
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
    assert not clock.may(is_question=False)


def test_one_question_tries_after_the_pause_and_no_order_does() -> None:
    clock = Clock().opened()
    clock.now = clock.circuit.retry_at - 0.001
    assert not clock.may()
    clock.until_due()
    assert not clock.may(is_question=False)
    clock.send()
    assert clock.circuit.state is HALF_OPEN
    clock.now += 60
    assert not clock.may()  # only one
    assert not clock.may(is_question=False)


def test_an_answer_to_the_trial_lets_everything_through_again() -> None:
    clock = Clock().opened().until_due()
    clock.answer()
    assert clock.circuit.state is CLOSED
    assert clock.may(is_question=False)
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
    clock.until_due().fail(chance=0.999)
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


def test_people_read_since_when_and_when_it_tries_next() -> None:
    since = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
    later = since.replace(second=4)
    assert CircuitFacts().sentence == ""
    assert CircuitFacts(OPEN, since, later).sentence == (
        "no calls since 2026-11-21T08:00:00Z, next try at 2026-11-21T08:00:04Z"
    )
    assert CircuitFacts(HALF_OPEN, since).sentence == (
        "no calls since 2026-11-21T08:00:00Z, one is trying now"
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
                clock.fail(term, chance=seconds / 6.1)
            else:
                {"answered": clock.answer, "given_up": clock.give_up}[what](term)
        trials = [term for term, is_trial in running if is_trial and term == clock.circuit.term]
        assert len(trials) == clock.circuit.is_trying
        later = clock.now + OPTIONS.pause.max_seconds
        assert clock.circuit.is_trying or clock.circuit.admits(later, is_question=True)
