"""How Postgres finds the rows of the list: by an index, never by reading the history."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.http import QueryDict

from ipuhub.web.access import Scope
from ipuhub.web.keyset import read_page
from jobs.models import JobRecord
from jobs.selectors import listed_jobs
from jobs.views import JobFilters

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
    "created_at": "first.created_at - n * interval '1 minute'",
}


@pytest.fixture
def _history(db: None) -> None:
    """8,000 jobs: the first by its model, the others made of it by PostgreSQL, in no time."""
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
        cursor.execute("SET LOCAL enable_seqscan = off")  # so small a table may well be read whole


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
    query: str, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = JobFilters(QueryDict(query), queryset=listed_jobs(scope))
    plans: list[str] = []
    seen = QuerySet.__iter__

    def explained(rows: QuerySet[JobRecord]) -> object:
        plans.append(rows.explain())
        return seen(rows)

    monkeypatch.setattr(QuerySet, "__iter__", explained)
    page = read_page(filters.qs, ("created_at", "id"), "", 50)
    assert page.rows
    assert plans
    assert not [plan for plan in plans if "Seq Scan on jobs_jobrecord" in plan]
