"""How Postgres finds the rows of the list: by an index, never by reading the history."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.http import QueryDict

from ipuhub.keyset import read_page
from ipuhub.web.access import Scope
from jobs.filters import JobFilters
from jobs.models import JobRecord
from jobs.selectors import listed_jobs

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


@pytest.fixture
def _history(db: None) -> None:
    made = [
        JobRecord(
            uid=f"uid-{number}",
            namespace=f"team-{number % 40}",
            group=f"group-{number % 30}",
            user=f"user-{number % 30}",
            name=f"job-{number}",
            status="Failed" if number % 39 == 0 else "Completed",
            spec={"pad": "x" * 800},
            created_at=NOW - dt.timedelta(minutes=number),
            updated_at=NOW,
        )
        for number in range(8000)
    ]
    JobRecord.objects.bulk_create(made, batch_size=2000)
    with connection.cursor() as cursor:
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
