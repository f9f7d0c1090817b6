"""Allowed phase transitions, and the phases that requests lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ipuhub.partition import Phase, Reason
from partitions.errors import Contradiction, IllegalTransition, StaleAttempt
from partitions.proxy import lifecycle, tombstones
from partitions.proxy.lifecycle import Request, TrackerEntry, Verdict

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
Step = Callable[[TrackerEntry], TrackerEntry | None]

STEPS: dict[str, tuple[Step, set[Phase]]] = {
    "begin_attempt": (
        lambda entry: lifecycle.begin_attempt(entry, 1),
        {Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR},
    ),
    "make_again": (
        lifecycle.make_again,
        {Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR},
    ),
    "accept": (lifecycle.accept, {Phase.RESERVING}),
    "activate": (lambda entry: lifecycle.activate(entry, LATER), {Phase.CREATING, Phase.ERROR}),
    "fail": (
        lambda entry: lifecycle.fail(entry, Reason.PARTITION_ERROR, "broken"),
        {Phase.RESERVING, Phase.CREATING, Phase.ACTIVE},
    ),
    "begin_release": (
        lifecycle.begin_release,
        {Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR, Phase.RELEASING},
    ),
    "rename": (
        lambda entry: lifecycle.rename(entry, "p-2"),
        {Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR},
    ),
    "ask": (
        lambda entry: lifecycle.note_request(entry, "a/b", "s"),
        {Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR},
    ),
    "leave": (
        lambda entry: tombstones.leave(entry, LATER, "it is another's"),
        {Phase.RESERVING, Phase.RELEASING},
    ),
    "finish_release": (
        lambda entry: tombstones.finish_release(entry, LATER),
        {Phase.RESERVING, Phase.RELEASING},
    ),
}


def entry(phase: Phase = Phase.ACTIVE, **given: object) -> TrackerEntry:
    made = TrackerEntry(
        uid="uid",
        instance=0,
        namespace="default",
        name="job",
        attempt=2,
        id="p-job-default-0",
        size=4,
        phase=phase,
        controller="v1:8090",
        label="a=b",
        reserved_at=NOW,
        reason="Before",
        message="before",
    )
    return replace(made, **given)  # type: ignore[arg-type]


def request_with(**given: object) -> Request:
    made = Request("uid", "default", "job", 0, 4, 2)
    return replace(made, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("phase", list(Phase))
def test_a_step_is_possible_from_the_phases_it_belongs_to_and_from_no_other(
    name: str, phase: Phase
) -> None:
    step, allowed = STEPS[name]
    if phase in allowed:
        assert step(entry(phase)) is not None
    else:
        with pytest.raises(IllegalTransition):
            step(entry(phase))


def test_a_step_forgets_the_reason_of_the_phase_before() -> None:
    for step, allowed in STEPS.values():
        for phase in allowed - {Phase.RELEASING}:
            after = step(entry(phase))
            assert after is not None
            assert "before" not in {after.message, after.reason.lower()}


def test_the_first_activation_counts() -> None:
    first = lifecycle.activate(entry(Phase.CREATING), NOW)
    again = lifecycle.activate(lifecycle.accept(lifecycle.begin_attempt(first, 3)), LATER)
    assert (again.active_at, again.attempt) == (NOW, 3)


def test_a_release_under_way_stays_as_it_is() -> None:
    before = entry(Phase.RELEASING)
    assert lifecycle.begin_release(before) is before


def test_a_moved_reservation_keeps_its_holder_and_time() -> None:
    held = entry(Phase.RESERVING, terms="2s")
    moved = lifecycle.move(held, controller="v2:1", label="c=d", partition_id="p-2")
    assert (moved.controller, moved.label, moved.id) == ("v2:1", "c=d", "p-2")
    assert moved.terms == ""  # it is asked for anew
    assert (moved.holder, moved.reserved_at) == (("uid", 0), NOW)


def test_what_may_come_of_requests_that_differed_has_any_terms() -> None:
    first = lifecycle.note_request(entry(Phase.RESERVING), "", "2s")
    assert lifecycle.has_request(first, "", "2s")
    assert not lifecycle.has_request(first, "", "4s")
    assert lifecycle.note_request(first, "", "4s").terms == "4s"  # nobody was asked before
    unanswered = lifecycle.hang_unanswered(first, "deadline")
    again = lifecycle.note_request(unanswered, "", "4s")
    assert again.terms == lifecycle.ANY_TERMS
    assert lifecycle.has_request(again, "", "4s")


def test_a_reservation_that_never_was_active_is_given_up_without_a_trace() -> None:
    assert tombstones.give_up(entry(Phase.RESERVING), LATER) is None
    tomb = tombstones.give_up(entry(Phase.RESERVING, active_at=NOW), LATER)
    assert tomb is not None
    assert (tomb.phase, tomb.released_at) == (Phase.RELEASED, LATER)


def test_why_it_hangs_is_noted_once() -> None:
    hanging = lifecycle.hang(entry(), Reason.CONTROLLER_UNAVAILABLE, "refused")
    assert (hanging.phase, hanging.reason) == (Phase.ACTIVE, "ControllerUnavailable")
    assert lifecycle.hang(hanging, Reason.CONTROLLER_UNAVAILABLE, "deadline") is hanging


def test_settled_phases_need_nothing_more() -> None:
    assert {phase for phase in Phase if phase.is_settled} == {
        Phase.ACTIVE,
        Phase.ERROR,
        Phase.RELEASED,
    }


@pytest.mark.parametrize(
    ("known", "request_", "want_verdict"),
    [
        (None, request_with(), Verdict.RESERVE),
        (entry(Phase.RELEASED), request_with(), Verdict.RESERVE),
        (entry(Phase.RELEASED), request_with(size=8), Verdict.RESERVE),
        (entry(Phase.RELEASING), request_with(attempt=3), Verdict.KEEP),
        (entry(Phase.RELEASING), request_with(attempt=3, size=8), Verdict.KEEP),
        (entry(Phase.ACTIVE), request_with(), Verdict.KEEP),
        (entry(Phase.ERROR), request_with(), Verdict.KEEP),
        (entry(Phase.RESERVING), request_with(), Verdict.KEEP),
        (entry(Phase.ACTIVE), request_with(attempt=3), Verdict.RESET),
        (entry(Phase.ERROR), request_with(attempt=3), Verdict.RESET),
        (entry(Phase.CREATING), request_with(attempt=9), Verdict.RESET),
        (entry(Phase.ACTIVE), request_with(attempt=3, size=8), Verdict.RELEASE_FIRST),
    ],
)
def test_what_a_request_comes_to(
    known: TrackerEntry | None, request_: Request, want_verdict: Verdict
) -> None:
    assert lifecycle.decide(known, request_) is want_verdict


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.WAITING])
def test_a_lower_attempt_is_stale_in_every_phase(phase: Phase) -> None:
    with pytest.raises(StaleAttempt, match="attempt 2; a call for attempt 1"):
        lifecycle.decide(entry(phase), request_with(attempt=1))


def test_another_size_or_job_contradicts() -> None:
    with pytest.raises(Contradiction, match="for 8 release them first"):
        lifecycle.decide(entry(), request_with(size=8))
    with pytest.raises(Contradiction, match="default/job"):
        lifecycle.decide(entry(), request_with(name="other"))


@pytest.mark.parametrize(
    ("phase", "age", "recorded", "needs_recorder", "want"),
    [
        (Phase.RELEASED, 899, True, False, False),
        (Phase.RELEASED, 900, False, False, True),
        (Phase.RELEASED, 900, False, True, False),
        (Phase.RELEASED, 900, True, True, True),
        (Phase.RELEASED, 10, True, True, False),
        (Phase.ACTIVE, 10**6, True, False, False),
        (Phase.ERROR, 10**6, True, False, False),
    ],
)
def test_when_a_tombstone_may_go(
    phase: Phase, age: int, recorded: bool, needs_recorder: bool, want: bool
) -> None:
    tomb = entry(phase, released_at=NOW, recorded=recorded)
    now = NOW + timedelta(seconds=age)
    assert tombstones.is_expired(tomb, now, 900, needs_recorder=needs_recorder) is want
