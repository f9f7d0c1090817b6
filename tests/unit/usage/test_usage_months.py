from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usage.time.windows import Month, MonthError

_ZONES = ("UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Asia/Taipei")


@pytest.mark.parametrize(
    ("zone", "text", "want_first", "want_hours"),
    [
        ("UTC", "2028-02", "2028-02-01T00:00", 29 * 24),
        ("UTC", "2026-02", "2026-02-01T00:00", 28 * 24),
        ("Europe/Berlin", "2026-03", "2026-02-28T23:00", 31 * 24 - 1),
        ("Europe/Berlin", "2026-10", "2026-09-30T22:00", 31 * 24 + 1),
        ("Asia/Taipei", "2026-11", "2026-10-31T16:00", 30 * 24),
        # The clock goes back at 01:00 of the 1st: midnight comes twice and the first counts.
        ("America/Havana", "2026-11", "2026-11-01T04:00", 30 * 24 + 1),
    ],
)
def test_a_month_has_its_hours(zone: str, text: str, want_first: str, want_hours: int):
    month, place = Month.parse(text), ZoneInfo(zone)
    assert month.first(place) == datetime.fromisoformat(want_first).replace(tzinfo=UTC)
    assert month.end(place) - month.first(place) == timedelta(hours=want_hours)


@pytest.mark.parametrize(
    "text", ["2026-13", "2026-00", "2026-1", "26-01", "2026/01", "", "٢٠٢٦-01"]
)
def test_what_is_no_month_is_refused_with_a_sentence(text: str):
    with pytest.raises(MonthError, match=r"is not a month. Use YYYY-MM"):
        Month.parse(text)


def test_months_follow_each_other_over_the_year():
    december = Month(2026, 12)
    assert str(december.next()) == "2027-01"
    assert december.next().previous() == december
    assert [str(m) for m in Month(2026, 11).until(Month(2027, 1))] == [
        "2026-11",
        "2026-12",
        "2027-01",
    ]


@given(
    st.integers(320_000_000, 2_200_000_000).map(lambda s: datetime.fromtimestamp(s, UTC)),
    st.sampled_from(_ZONES),
)
def test_every_instant_lies_in_exactly_its_month(instant: datetime, zone: str):
    place = ZoneInfo(zone)
    month = Month.of(instant, place)
    assert month.first(place) <= instant < month.end(place)
    assert month.end(place) == month.next().first(place)
