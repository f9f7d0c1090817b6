"""Bars of lifetimes."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.job.timeline import Row, Span, draw_timeline

if TYPE_CHECKING:
    from dashboard.job.timeline import Timeline

NINE = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)


def span(begin: float, end: float | None) -> Span:
    until = None if end is None else NINE + dt.timedelta(seconds=end)
    return Span(NINE + dt.timedelta(seconds=begin), until, "worker", "words")


def draw(*spans: Span, now: float = 1000) -> Timeline:
    timeline = draw_timeline([Row("pod", [one]) for one in spans], NINE + dt.timedelta(seconds=now))
    assert timeline is not None
    return timeline


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw_timeline([], NINE) is None
    assert draw_timeline([Row("pod", [])], NINE) is None


def test_bars_lie_where_their_times_are() -> None:
    first, second = draw(span(0, 50), span(25, 100)).rows
    assert (first.bars[0].x, first.bars[0].width) == ("0.00%", "50.00%")
    assert (second.bars[0].x, second.bars[0].width) == ("25.00%", "75.00%")


def test_what_goes_on_reaches_to_now() -> None:
    timeline = draw(span(0, None), span(0, 10), now=40)
    assert timeline.rows[0].bars[0].width == "100.00%"
    assert timeline.rows[1].bars[0].width == "25.00%"


def test_a_moment_is_still_seen_also_at_the_very_end() -> None:
    bar = draw(span(0, 1000), span(1000, 1000)).rows[1].bars[0]
    assert (bar.x, bar.width) == ("99.60%", "0.40%")


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (8, ["09:00:01", "09:00:02"]),
        (600, ["09:02", "09:04"]),
        (7200, ["09:15", "09:30"]),
        (86400, ["12:00", "15:00"]),
        (30 * 86400, ["28 Nov", "05 Dec"]),
    ],
)
def test_marks_stand_at_round_times(seconds: float, want: list[str]) -> None:
    ticks = draw(span(0, seconds)).ticks
    assert [tick.words for tick in ticks[:2]] == want
    assert [tick.is_major for tick in ticks[:2]] == [True, False]


times = st.floats(0, 1e8, allow_nan=False)


@given(st.lists(st.tuples(times, st.none() | times), min_size=1, max_size=8), times)
def test_no_bar_and_no_mark_leaves_the_drawing(
    lives: list[tuple[float, float | None]], now: float
) -> None:
    timeline = draw(*(span(begin, end) for begin, end in lives), now=now)
    for row in timeline.rows:
        for bar in row.bars:
            left, width = float(bar.x[:-1]), float(bar.width[:-1])
            assert left >= 0
            assert width > 0
            assert left + width <= 100.02
            assert bar.y + 16 <= timeline.height
    assert len(timeline.ticks) <= 9
    assert all(0 <= float(tick.x[:-1]) <= 92 for tick in timeline.ticks)
