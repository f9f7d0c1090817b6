"""Months of any calendar cut lifetimes without a second lost or counted twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from usage.time.windows import Month, clip, whole_seconds

if TYPE_CHECKING:
    from usage.time.windows import Piece

ZONES = [
    "UTC",
    "Europe/London",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour of summer time
    "America/Havana",  # changes its clocks at midnight
    "Pacific/Apia",  # left a whole day out
]
_FIRST, _DAYS = datetime(2011, 11, 1, tzinfo=UTC), 366 * 18
instants = st.integers(0, _DAYS * 86400 * 1000).map(lambda n: _FIRST + timedelta(milliseconds=n))
lengths = st.one_of(
    st.sampled_from([0, 1, 59, 60, 3600, 86_399, 86_400, 86_401, 31 * 86_400, 800 * 86_400]),
    st.integers(0, 500 * 86_400),
).map(lambda seconds: timedelta(seconds=seconds))
zones = st.sampled_from(ZONES).map(ZoneInfo)


def pieces(
    began: datetime, ended: datetime | None, now: datetime, zone: ZoneInfo
) -> dict[Month, Piece]:
    """Return each month's sums in the report that is made at `now`."""
    found = {}
    for month in Month.of(began, zone).previous().until(Month.of(now, zone)):
        piece = clip(began, ended, month.first(zone), min(month.end(zone), now))
        if piece is not None:
            found[month] = piece
    return found


@given(instants, lengths, zones)
@example(datetime(2028, 2, 28, 23, 59, 59, tzinfo=UTC), timedelta(days=2), ZoneInfo("UTC"))
@example(datetime(2026, 3, 28, 23, 0, tzinfo=UTC), timedelta(days=3), ZoneInfo("Europe/London"))
@example(datetime(2026, 4, 4, 14, 0, tzinfo=UTC), timedelta(days=60), ZoneInfo(ZONES[4]))
def test_months_of_an_ended_pod_add_up_to_its_lifetime(began, length, zone):
    ended = began + length
    found = pieces(began, ended, ended + timedelta(days=40), zone)
    assert sum(piece.seconds for piece in found.values()) == whole_seconds(began, ended)
    assert list(found) == list(Month.of(began, zone).until(max(found)))
    assert [piece.running for piece in found.values()][-1] is False
    for month, piece in found.items():
        assert month.first(zone) <= piece.start <= piece.end <= month.end(zone)


@given(instants, lengths, lengths, zones)
def test_a_running_pod_counts_until_the_report_and_goes_on_where_that_ended(
    began, until_first, until_second, zone
):
    now = began + until_first
    later = now + until_second
    first, second = pieces(began, None, now, zone), pieces(began, None, later, zone)
    assert sum(piece.seconds for piece in first.values()) == whole_seconds(began, now)
    assert sum(piece.seconds for piece in second.values()) == whole_seconds(began, later)
    for month, piece in first.items():
        whole = second[month]
        assert piece.start == whole.start
        assert piece.seconds <= whole.seconds
        assert whole == piece or whole.end > piece.end


@given(instants, lengths, st.floats(0, 1), zones)
def test_an_end_that_comes_after_the_report_does_not_change_it(began, length, share, zone):
    now = began + length * share
    if now < began + length:
        assert pieces(began, began + length, now, zone) == pieces(began, None, now, zone)


@given(instants, zones)
def test_a_pod_of_one_second_lies_in_one_month_or_is_cut_between_two_whole_ones(began, zone):
    found = pieces(began, began + timedelta(seconds=1), began + timedelta(days=1), zone)
    assert sorted(piece.seconds for piece in found.values() if piece.seconds) == [1]


@given(instants, zones)
def test_a_pod_without_length_counts_in_the_month_of_its_beginning_alone(began, zone):
    found = pieces(began, began, began + timedelta(days=40), zone)
    assert {month: piece.seconds for month, piece in found.items()} == {Month.of(began, zone): 0}


@pytest.mark.parametrize("name", ZONES)
def test_months_leave_no_gap_and_do_not_overlap(name):
    zone = ZoneInfo(name)
    month = Month(2011, 11)
    while month < Month(2030, 1):
        assert month.first(zone) < month.end(zone) == month.next().first(zone)
        assert Month.of(month.first(zone), zone) == month
        assert Month.of(month.end(zone) - timedelta(microseconds=1), zone) == month
        month = month.next()


@pytest.mark.parametrize(
    ("month", "zone", "want_hours"),
    [
        ("2028-02", "UTC", 29 * 24),
        ("2026-02", "UTC", 28 * 24),
        ("2026-03", "Europe/London", 31 * 24 - 1),
        ("2026-10", "Europe/London", 31 * 24 + 1),
        ("2026-11", "America/New_York", 30 * 24 + 1),
        ("2026-04", "Australia/Lord_Howe", 30 * 24 + 0.5),
        ("2026-10", "Asia/Kolkata", 31 * 24),
    ],
)
def test_a_month_is_as_long_as_its_clocks_say(month, zone, want_hours):
    zone = ZoneInfo(zone)
    first, end = Month.parse(month).first(zone), Month.parse(month).end(zone)
    assert whole_seconds(first, end) == want_hours * 3600
