"""The numbers of stats and capacity as rows and bars."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from partitions.stats import StatRow, bar_segments, stat_table, sum_amounts

STATS = {
    "team-b": {"used": 8, "available": 20},
    "team-a": {"used": 4, "available": 20},
    "total": {"used": 12, "available": 20},
}


@dataclass(frozen=True)
class Amounts:
    used: int
    free: int
    cordoned: int
    faulty: int


def test_who_sees_all_gets_every_row_by_name_and_the_total() -> None:
    table = stat_table(STATS, lambda _: True, sees_all=True)
    assert [row.namespace for row in table.rows] == ["team-a", "team-b"]
    assert table.total == StatRow("total", 12, 20)


def test_others_get_their_rows_and_no_total() -> None:
    table = stat_table(STATS, lambda name: name == "team-a", sees_all=False)
    assert (table.rows, table.total, table.available) == ([StatRow("team-a", 4, 20)], None, 20)


def test_a_grant_of_a_namespace_called_total_opens_no_total() -> None:
    table = stat_table(STATS, lambda name: name == "total", sees_all=False)
    assert (table.rows, table.total) == ([], None)


def test_before_the_first_reading_nothing_is_known() -> None:
    table = stat_table({}, lambda _: True, sees_all=True)
    assert (table.rows, table.total, table.available) == ([], None, None)


@given(st.lists(st.builds(Amounts, *[st.integers(0, 100)] * 4)))
def test_a_bar_has_no_gap_and_no_overlap_and_adds_up(controllers: list[Amounts]) -> None:
    sums = sum_amounts(controllers)
    end = 0
    for segment in bar_segments(sums):
        assert segment.start == end
        assert segment.size > 0
        end += segment.size
    assert end == sums.total
