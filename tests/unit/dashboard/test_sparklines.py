"""The small charts under the figures."""

from __future__ import annotations

from datetime import UTC, datetime

from dashboard.overview.heldday import STEP_SECONDS, STEPS, DaySums
from dashboard.overview.sparklines import (
    HEIGHT,
    WIDTH,
    differences,
    draw_day,
    draw_failures,
    draw_line,
    means,
)


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_a_line_spans_the_drawing_and_turns_only_where_it_moves() -> None:
    drawn = draw_line("x", [1, 1, 1, 1, 2])
    assert [x for x, _ in points(drawn.line)] == [0, WIDTH * 3 / 4, WIDTH]
    assert points(drawn.line)[0][1] > points(drawn.line)[-1][1] > 0
    assert points(drawn.area)[0] == (0, HEIGHT)
    assert points(drawn.area)[-1] == (WIDTH, HEIGHT)


def test_the_scale_reaches_to_what_could_be() -> None:
    half = points(draw_line("x", [5, 5], top=10).line)
    assert abs(half[0][1] - HEIGHT / 2) < 1


def test_nothing_but_zeros_is_no_line() -> None:
    assert draw_line("x", [0, 0, 0]).line == ""
    assert draw_line("x", []).line == ""


def test_a_day_says_its_extremes_in_words_and_ends_with_now() -> None:
    drawn = draw_day("IPUs held", [0.0, 12.5, 3.0], 8)
    assert drawn.label == "IPUs held in the last 24 hours: from 0 to 12.5, now 8"
    assert points(drawn.line)[-1][0] == WIDTH


def test_failures_are_counted_by_the_hour() -> None:
    drawn = draw_failures({0: 1, 5: 1, STEPS - 1: 4})
    assert drawn.label.endswith("at most 4")
    assert len({y for _, y in points(drawn.line)}) == 3


def test_means_are_of_the_namespaces_that_may_be_seen() -> None:
    steps = [STEP_SECONDS * 2] * STEPS
    day = DaySums(datetime(2026, 11, 20, tzinfo=UTC), {("a", "x"): steps, ("b", "x"): steps})
    assert means(day, lambda name: name == "a") == [2.0] * STEPS
    assert means(day, lambda _: False) == [0.0] * STEPS


def test_what_is_beyond_is_never_below_zero() -> None:
    assert differences([4.0, 1.0], [1.0, 2.0]) == [3.0, 0.0]
