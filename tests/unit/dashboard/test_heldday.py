"""IPUs held in the last 24 hours, step by step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.template.loader import render_to_string
from hypothesis import given
from hypothesis import strategies as st

from dashboard.fleetqueue import UNKNOWN_GROUP
from dashboard.overview.heldday import STEP_SECONDS, STEPS, day_before, draw_day, sum_up

if TYPE_CHECKING:
    from dashboard.overview.heldday import DaySums

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DAY = STEPS * STEP_SECONDS


def part(namespace: str, ipus: int, begin: int, end: int, group: str = "") -> dict[str, Any]:
    """Return one partition's part in the form of parts_sql."""
    return {
        "namespace": namespace,
        "group": group or namespace,
        "first": min(begin // STEP_SECONDS, STEPS - 1),
        "last": min(end // STEP_SECONDS, STEPS - 1),
        "ipus": ipus,
        "begins": ipus * begin,
        "ends": ipus * end,
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.integers(1, 64), st.integers(0, DAY), st.integers(0, DAY)
        )
    )
)
def test_sums_equal_a_plain_loop(held: list[tuple[str, int, int, int]]) -> None:
    spans = [(name, ipus, min(one, two), max(one, two)) for name, ipus, one, two in held]
    found = sum_up([part(*span) for span in spans], BEGIN).by_owner
    for name in "ab":
        want = [
            sum(
                ipus * max(0, min(end, (step + 1) * STEP_SECONDS) - max(begin, step * STEP_SECONDS))
                for space, ipus, begin, end in spans
                if space == name
            )
            for step in range(STEPS)
        ]
        assert list(found.get((name, name), [0] * STEPS)) == want


def test_the_day_ends_with_the_last_whole_step() -> None:
    first, until = day_before(BEGIN + timedelta(minutes=17, seconds=3))
    assert until == BEGIN + timedelta(minutes=10)
    assert until - first == timedelta(days=1)


def draw(day: DaySums, sees: str = "") -> Any:
    return draw_day(day, 32, lambda space: not sees or space == sees)


def test_namespaces_that_one_may_not_see_are_others() -> None:
    day = sum_up([part("a", 4, 0, DAY), part("secret", 8, 0, DAY // 2)], BEGIN)
    assert [(area.label, area.mean) for area in draw(day).areas] == [("a", 4.0), ("secret", 4.0)]
    theirs = draw(day, sees="a")
    assert [area.label for area in theirs.areas] == ["a", ""]
    assert theirs.areas[1].css == "is-other"
    assert "secret" not in repr(theirs)


def test_namespaces_of_a_group_are_one_area_and_a_group_that_is_not_known_says_so() -> None:
    rows = [part("a", 4, 0, DAY, "ml"), part("b", 2, 0, DAY, "ml"), part("c", 1, 0, DAY)]
    rows += [part("secret", 8, 0, DAY, "ml"), {**part("d", 1, 0, DAY), "group": ""}]
    seen = draw_day(sum_up(rows, BEGIN), 32, lambda space: space != "secret")
    assert [(area.label, area.mean) for area in seen.areas] == [
        ("ml", 6.0),
        ("c", 1.0),
        (UNKNOWN_GROUP, 1.0),
        ("", 8.0),
    ]
    assert [area.css for area in seen.areas[2:]] == ["is-other"] * 2
    assert seen.areas[2].decals != seen.areas[3].decals


def test_many_groups_are_six_and_the_rest() -> None:
    day = sum_up([part(f"n{number}", number + 1, 0, DAY) for number in range(9)], BEGIN)
    areas = draw(day).areas
    assert [area.label for area in areas] == ["n8", "n7", "n6", "n5", "n4", "n3", ""]
    assert areas[-1].mean == 6.0


def test_areas_stand_on_each_other_below_the_capacity() -> None:
    chart = draw(sum_up([part("a", 16, 0, DAY), part("b", 16, 0, DAY)], BEGIN))
    heights = [{point.split(",")[1] for point in area.points.split()} for area in chart.areas]
    assert max(heights[0], key=float) == f"{chart.height}"
    assert heights[0] & heights[1] == {min(heights[0], key=float)}
    assert float(min(heights[1], key=float)) == chart.capacity_y


def test_an_empty_day_has_no_areas() -> None:
    assert draw(sum_up([], BEGIN)).areas == ()


def test_a_day_without_any_says_until_when_as_what_is_held_now_may_be_younger() -> None:
    first, until = day_before(BEGIN + timedelta(minutes=17))
    day = draw_day(sum_up([], first), 64, lambda _: True)
    assert day.until == until
    text = render_to_string("fleet/_day.html", {"day": day})
    shut = '<time datetime="2026-11-20T12:10:00+00:00">12:10</time>'
    assert f"No IPU was held in the 24 hours before {shut}" in text
