"""Ranges and steps: no step is lost, doubled or cut in the wrong place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usage.time.windows import MAX_POINTS, STEPS, Window, WindowError, step_begins

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
