"""Ranges and steps: no step is lost, doubled or cut in the wrong place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usage.time.windows import (
    MAX_POINTS,
    STEPS,
    Window,
    WindowError,
    period_before,
    step_begins,
)

UTC_ZONE, BERLIN = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_what_has_not_happened_is_cut_off() -> None:
    window = Window.of(at("2026-11-01"), at("2026-12-01"), at("2026-11-21T10:00:00.900"))
    assert window.until == at("2026-11-21T10:00")


def test_a_window_still_to_come_has_passed_nothing_of_it() -> None:
    window = Window.of(at("2027-01-01"), at("2027-02-01"), at("2026-11-21"))
    assert window.until == window.begin


@pytest.mark.parametrize("end", ["2026-11-01", "2026-10-31"])
def test_a_reversed_or_empty_range_is_refused(end: str) -> None:
    with pytest.raises(WindowError, match="before or at its beginning"):
        Window.of(at("2026-11-01"), at(end), at("2026-12-01"))


def test_days_follow_the_zone_over_a_change_of_clocks() -> None:
    window = Window.of(at("2026-10-24T22:00"), at("2026-10-26T23:00"), at("2027-01-01"))
    assert step_begins(window, "day", BERLIN) == [at("2026-10-24T22:00"), at("2026-10-25T23:00")]


def test_weeks_begin_on_monday_and_months_on_their_first() -> None:
    window = Window.of(at("2026-10-28"), at("2026-11-10"), at("2027-01-01"))
    assert step_begins(window, "week", UTC_ZONE)[1:] == [at("2026-11-02"), at("2026-11-09")]
    assert step_begins(window, "month", UTC_ZONE)[1:] == [at("2026-11-01")]


def test_too_many_steps_are_refused_and_the_most_allowed_are_not() -> None:
    begin = at("2026-01-01")
    most = Window.of(begin, begin + timedelta(hours=MAX_POINTS), begin)
    assert len(step_begins(most, "hour", UTC_ZONE)) == MAX_POINTS
    more = Window.of(begin, begin + timedelta(hours=MAX_POINTS, seconds=1), begin)
    with pytest.raises(WindowError, match="more than 2000 steps"):
        step_begins(more, "hour", UTC_ZONE)


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    window = Window.of(at("2026-11-01"), at("2026-11-02"), at("2026-12-01"))
    with pytest.raises(WindowError, match="hour, day, week, month"):
        step_begins(window, "year", UTC_ZONE)


@given(
    begin=st.datetimes(datetime(2020, 1, 1), datetime(2026, 1, 1)),  # noqa: DTZ001
    seconds=st.integers(1, 40 * 86_400),
    step=st.sampled_from(STEPS),
    zone=st.sampled_from([UTC_ZONE, BERLIN, ZoneInfo("Asia/Kolkata"), ZoneInfo("Asia/Beirut")]),
)
def test_steps_are_ordered_and_lie_in_the_window(
    begin: datetime, seconds: int, step: str, zone: ZoneInfo
) -> None:
    first = begin.replace(tzinfo=UTC)
    window = Window.of(first, first + timedelta(seconds=seconds), first)
    begins = step_begins(window, step, zone)
    assert begins[0] == window.begin
    assert begins == sorted(set(begins))
    assert begins[-1] < window.end


@pytest.mark.parametrize(
    ("begin", "end", "now", "want"),
    [
        ("2026-11-01", "2026-12-01", "2027-01-01", ("2026-10-01", "2026-11-01")),
        ("2026-11-01", "2026-12-01", "2026-11-21T10:30", ("2026-10-01", "2026-10-21T10:30")),
        ("2026-03-01", "2026-04-01", "2026-03-31T10:00", ("2026-02-01", "2026-03-01")),
        ("2026-10-01", "2027-01-01", "2026-11-21", ("2026-07-01", "2026-08-21")),
        ("2026-01-01", "2027-01-01", "2027-02-01", ("2025-01-01", "2026-01-01")),
        ("2026-11-10", "2026-11-20", "2026-11-12T06:00", ("2026-10-31", "2026-11-02T06:00")),
        ("2026-11-10T05:00", "2026-11-10T08:00", "2027-01-01", ("2026-11-10T02:00",)),
    ],
)
def test_the_period_before_is_of_the_same_kind_and_as_far_gone(
    begin: str, end: str, now: str, want: tuple[str, ...]
) -> None:
    window = Window.of(at(begin), at(end), at(now))
    before = period_before(window, UTC_ZONE)
    assert before.end == window.begin
    assert (before.begin, before.until) == (at(want[0]), at([*want, begin][1]))


def test_the_same_day_and_time_a_month_before_is_that_of_the_wall_clock() -> None:
    window = Window.of(at("2026-10-31T23:00"), at("2026-11-30T23:00"), at("2026-11-10T11:00"))
    before = period_before(window, BERLIN)
    assert before.begin == at("2026-09-30T22:00")
    assert before.until == at("2026-10-10T10:00")


@given(
    st.datetimes(*(at(each).replace(tzinfo=None) for each in ("2000-01-01", "2050-01-01"))),
    st.timedeltas(timedelta(seconds=1), timedelta(days=800)),
    st.floats(0, 1.5),
)
def test_the_period_before_never_overlaps(begin: datetime, length: timedelta, part: float) -> None:
    begin = begin.replace(tzinfo=UTC)
    window = Window.of(begin, begin + max(length, timedelta(seconds=2)), begin + part * length)
    before = period_before(window, BERLIN)
    assert before.begin < before.end == window.begin
    assert before.begin <= before.until <= before.end
