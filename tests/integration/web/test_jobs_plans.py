"""PostgreSQL finds the rows of the list by an index, never by scanning the history."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ipuhub.web.access import Scope
from ipuhub.web.filters import order_named
from ipuhub.web.keyset import Order, read_page
from jobs.models import JobRecord
from jobs.selectors import NAMED, SORTS, find_job, listed_jobs, names_like, visible_jobs
from jobs.views import JobFilters
from tests.fakes.emptytables import empty_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import DjangoDbBlocker

NEWEST = Order(("created_at", "id"))
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


_MANY = """
    INSERT INTO jobs_jobrecord ({columns})
    SELECT {values} FROM jobs_jobrecord AS first, generate_series(1, 7999) AS n
"""
_DIFFERS = {
    "uid": "'uid-' || n",
    "namespace": "'team-' || n % 40",
    "group": "'group-' || n % 30",
    "user": "'user-' || n % 30",
    "name": "'job-' || n",
    "status": "CASE WHEN n % 39 = 0 THEN 'Failed' ELSE 'Completed' END",
    "ipus": "1 << n % 5",
    "created_at": "first.created_at - n * interval '1 minute'",
    "started_at": "first.created_at - n * interval '61 seconds'",
    "completed_at": "first.created_at - n * interval '1 minute' + interval '1 hour'",
}


@pytest.fixture(scope="module")
def _stored(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """8,000 jobs, committed once for all tests."""
    with django_db_blocker.unblock():
        _store()
        yield
        empty_tables(connection)


@pytest.fixture
def _history(_stored: None, db: None) -> None:
    """The stored jobs, found by an index: so small a table may well be read whole."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")


def _store() -> None:
    """Make the first job by its model, and the others of it by PostgreSQL, in no time."""
    JobRecord.objects.create(
        uid="uid-0",
        namespace="team-0",
        group="group-0",
        user="user-0",
        name="job-0",
        status="Failed",
        spec={"pad": "x" * 800},
        created_at=NOW,
        updated_at=NOW,
    )
    columns = {
        f'"{each.column}"': f'first."{each.column}"'
        for each in JobRecord._meta.concrete_fields
        if not each.primary_key
    } | {f'"{name}"': value for name, value in _DIFFERS.items()}
    with connection.cursor() as cursor:
        cursor.execute(_MANY.format(columns=", ".join(columns), values=", ".join(columns.values())))
        cursor.execute("ANALYZE jobs_jobrecord")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plan of each query of a list that follows."""
    found: list[str] = []
    seen = QuerySet.__iter__

    def explained(rows: QuerySet[JobRecord]) -> object:
        found.append(rows.explain())
        return seen(rows)

    monkeypatch.setattr(QuerySet, "__iter__", explained)
    return found


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    "query",
    [
        "",
        "namespace=team-3",
        "status=Failed",
        "group=group-3",
        "user=user-3",
        "name=job-76",
        "since=2026-11-19&until=2026-11-19",
    ],
)
@pytest.mark.parametrize("scope", [Scope(None), Scope(frozenset({"team-3"}))])
def test_a_page_of_the_list_reads_no_whole_history(
    query: str, scope: Scope, plans: list[str]
) -> None:
    filters = JobFilters(QueryDict(query), queryset=listed_jobs(scope))
    page = read_page(filters.qs, NEWEST, "", 50)
    assert page.rows
    assert plans
    assert not [plan for plan in plans if "Seq Scan on jobs_jobrecord" in plan]


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    ("sort", "index"),
    [
        ("created", "job_newest"),
        ("name", "job_name_search"),
        ("ipus", "job_ipus"),
        ("user", "job_user"),
    ],
)
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_page_in_any_order_starts_in_its_index(
    sort: str, index: str, sign: str, plans: list[str]
) -> None:
    order, rows = order_named(SORTS, sign + sort, NEWEST), listed_jobs(Scope(None))
    page = read_page(rows, order, "", 50)
    read_page(rows, order, page.next_cursor or "", 50)
    assert len(plans) == 2
    assert all(f"using {index} on" in plan for plan in plans)
    conditions = [line for line in plans[1].splitlines() if "Index Cond: " in line]
    assert len(conditions) == 1
    assert "Sort" not in plans[1]


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize("query", ["ended=24h", "status=Failed&ended=24h"])
def test_jobs_that_ended_in_a_span_are_found_by_their_end(query: str, plans: list[str]) -> None:
    JobRecord.objects.filter(name="job-39").update(completed_at=timezone.now())
    filters = JobFilters(QueryDict(query), queryset=listed_jobs(Scope(None)))
    assert [job.name for job in read_page(filters.qs, NEWEST, "", 50).rows] == ["job-39"]
    assert len(plans) == 1
    assert "job_over" in plans[0]


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(("sort", "index"), [("ended", "job_over"), ("duration", "job_duration")])
@pytest.mark.parametrize("sign", ["", "-"])
def test_jobs_with_and_without_an_end_are_read_in_one_query_by_one_index(
    sign: str, sort: str, index: str, plans: list[str]
) -> None:
    order, rows = order_named(SORTS, f"{sign}{sort}", NEWEST), listed_jobs(Scope(None))
    page = read_page(rows, order, "", 50)
    read_page(rows, order, page.next_cursor or "", 50)
    assert len(plans) == 2
    for plan in plans:
        assert "Incremental Sort" in plan  # of those that ended in one instant
        assert "IS NULL)" in plan
        assert len(re.findall(f"(using|on) {index}", plan)) == 2
        assert not re.search(f"(using|on) (?!{index})job_", plan)
    page = read_page(rows, order, "", 9000)
    assert page.rows[-1].name == "job-0"  # the only job without


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    ("scope", "indexes"),
    [
        (Scope(None), {"job_namespace", "job_owner", "job_group", "job_user"}),
        (Scope(frozenset({"team-3", "team-4"})), {"job_owner"}),
    ],
)
def test_owners_of_jobs_are_found_in_indexes_of_their_names(
    scope: Scope, indexes: set[str]
) -> None:
    with CaptureQueriesContext(connection) as queries:
        found = names_like(scope, "-3", 50)
    kinds = {kind: visible_jobs(scope).filter(**{f"{kind}__contains": "-3"}) for kind in NAMED}
    want = {
        (kind, name) for kind, jobs in kinds.items() for name in jobs.values_list(kind, flat=True)
    }
    assert set(found) == want
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {queries[0]['sql']}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert set(re.findall(r"(\w+) on jobs_jobrecord", plan)) <= indexes, plan


@pytest.mark.usefixtures("_history")
def test_the_jobs_of_a_name_are_found_in_the_index_of_names() -> None:
    with CaptureQueriesContext(connection) as queries:
        find_job(Scope(None), "uid-0")
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + queries[0]["sql"])
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert plan.count("job_name_search") == 2, plan
