from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from ipuhub.web.access import Scope
from tests.builders.lifetimes import at
from tests.builders.manylifetimes import many_stored
from usage.reports.columns import DEFAULT, PRIMEHUB
from usage.reports.csv import IN_ORDER
from usage.reports.monthly import Range, details_sql, rows_sql
from usage.sums.compare import pair_sql
from usage.sums.engine import HASHED
from usage.sums.measures import dimensions
from usage.sums.queries import Question
from usage.time.windows import POD_PIECES, Window, bounds, period_before

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db  # its connection is not used: the rows are never committed
_ROWS = 200_000


@pytest.fixture(scope="module")
def history(django_db_setup, django_db_blocker) -> Iterator[Any]:
    """Two years of pods, gone again after this module."""
    with (
        django_db_blocker.unblock(),
        many_stored(_ROWS, at("2024-11-01T00:00"), at("2026-11-15T00:00")) as cursor,
    ):
        yield cursor


def _covers(month: str) -> Range:
    first = at(f"{month}-01T00:00")
    end = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return Range(month, "UTC", first, end, at("2026-11-15T00:00"))


def _nodes(cursor: Any, query: str, parameters: Any) -> list[dict[str, Any]]:
    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", parameters)
    (plan,) = cursor.fetchone()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    found, waiting = [], [plan[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += node.get("Plans", ())
    return found


def _touched(nodes: list[dict[str, Any]]) -> float:
    """Rows that were read from the tables, kept or not."""
    scans = [node for node in nodes if "Scan" in node["Node Type"] and "Relation Name" in node]
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in scans
    )


@pytest.mark.parametrize("month", ["2025-03", "2026-10", "2026-11"])
@pytest.mark.parametrize(
    "query",
    [rows_sql, partial(details_sql, DEFAULT), partial(details_sql, PRIMEHUB)],
    ids=["summary", "details", "primehub details"],
)
def test_a_month_is_read_without_scanning_the_history(history: Any, query: Any, month: str):
    nodes = _nodes(history, query(_covers(month)), _covers(month).parameters)
    scanned = {node.get("Relation Name") for node in nodes if node["Node Type"] == "Seq Scan"}
    assert "usage_podlifetime" not in scanned
    assert _touched(nodes) < _ROWS / 24 * 1.5


def test_an_hour_is_read_without_scanning_the_history(history: Any):
    parameters = bounds(at("2025-03-05T10:00"), at("2025-03-05T11:00"))
    nodes = _nodes(history, f"SELECT sum(seconds) FROM ({POD_PIECES}) AS pods", parameters)
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}
    assert _touched(nodes) < 2000


def test_the_first_line_of_the_details_waits_for_no_sort_of_the_month(history: Any):
    history.execute("SAVEPOINT plans")
    history.execute(IN_ORDER)
    nodes = _nodes(history, details_sql(DEFAULT, _covers("2026-10")), _covers("2026-10").parameters)
    history.execute("ROLLBACK TO plans")
    sorts = [node for node in nodes if node["Node Type"] == "Sort"]
    assert all(node["Actual Rows"] < 1000 for node in sorts), "only what was carried in is sorted"
    assert nodes[0]["Actual Startup Time"] < nodes[0]["Actual Total Time"] / 4
    assert all(node["Total Cost"] < 1e8 for node in nodes), "of a way that IN_ORDER switched off"


@pytest.mark.parametrize("month", ["2025-03", "2026-10"])
def test_the_planner_knows_how_few_lines_a_summary_has_and_is_forbidden_nothing(
    history: Any, month: str
):
    nodes = _nodes(history, rows_sql(_covers(month)), _covers(month).parameters)
    sums = [node for node in nodes if node["Node Type"] == "Aggregate"]
    largest = max(sums, key=lambda node: node["Actual Rows"])
    assert largest["Actual Rows"] / 2 < largest["Plan Rows"] < largest["Actual Rows"] * 2
    assert all(node["Total Cost"] < 1e8 for node in nodes), "of a plan that was switched off"
    assert "SET" not in HASHED.replace("SET LOCAL work_mem", "")


@pytest.mark.parametrize("by", ["job", "node", "label:project", "user,job", "group"])
@pytest.mark.parametrize("month", ["2025-03", "2026-11"])
def test_a_comparison_reads_the_pods_of_both_periods_alone(history: Any, month: str, by: str):
    covers = _covers(month)
    window = Window.of(covers.first, covers.end, covers.generated_at)
    names = dimensions(by.split(","), ("project",))
    question = Question(Scope(None), window, ZoneInfo("UTC"), names)
    found = pair_sql(question, period_before(window, question.zone))
    assert found is not None
    nodes = _nodes(history, found.sql, found.parameters)
    scanned = {node.get("Relation Name") for node in nodes if node["Node Type"] == "Seq Scan"}
    assert "usage_podlifetime" not in scanned
    assert _touched(nodes) < 2 * _ROWS / 24 * 1.5
