"""Hours of the week follow the clocks of the zone, also where they change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from ipuhub.text import spell_share
from usage.utilization.amounts import Utilization
from usage.utilization.weekhours import DAYS, SLOTS, draw_week, slot_of, week_of

BERLIN: Final = ZoneInfo("Europe/Berlin")
ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)
QUARTER: Final = timedelta(minutes=15)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("zone", [ZoneInfo(name) for name in ZONES], ids=ZONES)
@pytest.mark.parametrize(
    "day", ["2026-03-06", "2026-03-27", "2026-10-02", "2026-10-23", "2011-12-28"]
)
def test_each_quarter_lies_in_the_hour_that_the_clocks_show(zone: ZoneInfo, day: str) -> None:
    begin, until = at(day) + QUARTER, at(day) + timedelta(days=4)
    week = week_of(begin, until, zone)
    (first, *_), (*_, last) = week.shifts, week.shifts
    assert (first.begin, last.until) == (begin, until)
    hours = week.hours(begin, until)
    slot, seen = -1, begin
    while seen < until:
        local = seen.astimezone(zone)
        slot = hours.get(seen, slot)
        assert slot == local.weekday() * 24 + local.hour
        (part,) = week.cut(seen, seen + QUARTER)
        assert slot_of(int(seen.timestamp()), part.seconds) == slot
        seen += QUARTER


@pytest.mark.parametrize(
    ("day", "want_hours", "want_twice"), [("2026-10-25", 25, [2]), ("2026-03-29", 23, [])]
)
def test_an_hour_that_comes_twice_counts_twice_and_a_skipped_one_nowhere(
    day: str, want_hours: int, want_twice: list[int]
) -> None:
    begin = datetime.fromisoformat(day).replace(tzinfo=BERLIN)
    end = (begin + timedelta(days=1)).astimezone(UTC)
    begin = begin.astimezone(UTC)
    slots = [slot - 6 * 24 for slot in week_of(begin, end, BERLIN).hours(begin, end).values()]
    assert len(slots) == want_hours
    assert [hour for hour in set(slots) if slots.count(hour) == 2] == want_twice
    assert set(range(24)) - set(slots) == (set() if want_twice else {2})


def test_years_of_clocks_are_few_parts() -> None:
    begin, until = at("2024-01-01"), at("2027-01-01")
    shifts = week_of(begin, until, BERLIN).shifts
    assert [shift.begin for shift in shifts[1:]] == [
        at(text)
        for text in (
            "2024-03-31T01:00",
            "2024-10-27T01:00",
            "2025-03-30T01:00",
            "2025-10-26T01:00",
            "2026-03-29T01:00",
            "2026-10-25T01:00",
        )
    ]
    assert week_of(until, until, BERLIN).shifts == ()


def test_a_cell_tells_its_share_and_one_without_data_says_so() -> None:
    sums = {
        0: Utilization(capacity=100, reserved=20, held_idle=5, idle=80),
        25: Utilization(capacity=100, reserved=100),
        50: Utilization(capacity=100, unknown=100),
        51: Utilization(capacity=100, idle=70, unknown=30),
    }
    heat = draw_week(sums)
    assert [name for name, _ in heat.rows] == list(DAYS)
    cells = [cell for _, row in heat.rows for cell in row]
    assert [cell.day * 24 + cell.hour for cell in cells] == list(range(SLOTS))
    assert {slot: cells[slot].level for slot in (0, 1, 25, 50, 51)} == {
        0: 1,
        1: None,
        25: 4,
        50: None,
        51: 0,
    }
    assert cells[0].words == "Mon 00:00: 20.0 % held, 5.0 % held idle"
    assert cells[50].words == "Wed 02:00: no data"
    assert cells[51].words == "Wed 03:00: 0.0 % held, 30.0 % unknown"
    assert heat.words == "Most held: Tue 01:00, 100.0 %. Least held: Wed 03:00, 0.0 %."
    assert [cell.share for cell in dict(heat.hours)["01:00"]][:2] == ["no data", "100.0 %"]
    assert draw_week({}).words == ""


def test_hours_that_are_all_alike_have_no_most_and_no_least() -> None:
    """A new installation knows one hour."""
    free, half = Utilization(capacity=9, idle=9), Utilization(capacity=8, reserved=4)
    assert draw_week({8: free}).words == "Every recorded hour: 0.0 % held."
    twice = Utilization(capacity=16, reserved=8)
    assert draw_week({8: half, 9: twice}).words == "Every recorded hour: 50.0 % held."


@pytest.mark.parametrize(
    ("part", "whole", "want"),
    [
        (0, 0, ""),
        (0, 9, "0.0 %"),
        (1, 2001, "< 0.1 %"),
        (1, 2000, "0.1 %"),
        (1, 3, "33.3 %"),
        (4, 32, "12.5 %"),
        (1225, 10_000, "12.3 %"),
        (1999, 2000, "> 99.9 %"),
        (9, 9, "100.0 %"),
    ],
)
def test_a_small_share_is_not_told_as_nothing_and_a_large_one_not_as_all(
    part: int, whole: int, want: str
) -> None:
    assert spell_share(part, whole) == want
