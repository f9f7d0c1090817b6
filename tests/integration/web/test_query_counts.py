"""The number of queries of each page is constant: a query per row fails here."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from jobs.models import JobRecord
from partitions.models import CapacityChange
from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import store_pod
from tests.builders.questions import count_queries
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.usage.reading import make
from tests.integration.web.addresses import EXAMPLES, api_reads, page_addresses
from usage.utilization.rollups import refresh

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

MOST = 8
MOST_BYTES = 60_000  # of a page, packed
# Of a user with grants, who costs one query more than an administrator; the sessions' two included.
BASELINE = {
    "/jobs/": 6,
    "/jobs/?namespace=team-a&status=Completed": 6,
    "/jobs/?sort=-ended&status=Completed": 6,
    "/jobs/?format=csv": 4,
    "/jobs/uid-team-a-job-0007/": 6,
    "/jobs/uid-team-a-job-0007/logs/": 6,
    "/jobs/uid-team-a-job-0007/events/": 7,
    "/jobs/uid-team-a-job-0007/yaml/": 6,
    "/jobs/uid-team-a-job-0007/yaml/?view=diff": 6,
    "/account/tokens/": 4,  # one of them: whether the navigation has reports
    "/api/v1/jobs": 3,
    "/api/v1/subscriptions": 2,
    "/api/v1/jobs/uid-team-a-job-0007": 3,
    "/api/v1/jobs/uid-team-a-job-0007/pods": 4,
    "/api/v1/jobs/uid-team-a-job-0007/usage": 5,
    "/api/v1/jobs/uid-team-a-job-0007/waiting": 3,
    "/api/v1/jobs/uid-team-a-job-0007/events": 4,
    "/api/v1/jobs/uid-team-a-job-0007/manifest": 3,
}
# Of an accountant with grants, where there are prices: those and costs take two more.
WITH_COST = {
    "/jobs/": 8,
    "/jobs/?format=csv": 6,
    "/jobs/uid-team-a-job-0007/": 8,
    "/usage/": 8,
    "/usage/?by=job": 8,
    "/usage/?window=quarter&group=team-a": 7,
    "/usage/pods/": 8,
    "/partitions/": 8,
    "/usage/?by=job&compare=before": 8,
    "/usage/reports/": 7,
    "/usage/reports/2026-10/groups/": 5,
    "/usage/reports/2026-10/statement/?group=team-a": 8,
    "/usage/rates/": 4,
    "/api/v1/jobs/uid-team-a-job-0007/usage": 7,
    "/api/v1/jobs": 5,
    "/api/v1/partitions": 6,
    "/api/v1/usage/reports/2026-10/statement?group=team-a": 7,
    "/api/v1/usage/lifetimes": 6,
    "/api/v1/usage/partitions": 8,
    "/api/v1/usage/summary?by=job": 6,
}


@pytest.fixture
def _history(db: None) -> None:
    jobhistory.jobs(300)
    for job in JobRecord.objects.order_by("name")[:20]:
        for number in range(10):
            jobhistory.pod(job, pod_name=f"{job.name}-worker-{number}")
            jobhistory.attempt(job, number)
            jobhistory.transition(job, "Running", number)
        jobhistory.partition(job)


def _count(caller: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        answer = caller.get(address)
        assert b"".join(answer) if answer.streaming else answer.content
    assert answer.status_code == 200
    return count_queries(queries)


@pytest.mark.usefixtures("_history")
def test_no_page_needs_more_queries_than_its_baseline(alice: User) -> None:
    person, program = browser(alice), api_client(alice)
    program.get("/api/v1/jobs")  # notes the use of the token, once a minute
    counted = {
        address: _count(program if address.startswith("/api/") else person, address)
        for address in BASELINE
    }
    assert counted == BASELINE
    assert max(counted.values()) <= MOST


@pytest.mark.usefixtures("_history")
def test_no_page_with_cost_needs_more_queries_than_its_baseline(admin: User, alice: User) -> None:
    store_rate("cpu", "1")
    store_rate("partition-ipu", "1")
    grant(alice, "accountant")
    store_pod("2026-10-01T00:00", "2026-10-02T00:00", group="team-a")
    make("2026-10", "2026-11-10T00:00")
    counted = {}
    for user in (alice, admin):
        person, program = browser(user), api_client(user)
        program.get("/api/v1/jobs")
        counted[user] = {
            address: _count(program if address.startswith("/api/") else person, address)
            for address in WITH_COST
        }
    assert counted[alice] == WITH_COST
    assert counted[admin] == {
        address: query_count - 1 for address, query_count in WITH_COST.items()
    }
    assert max(WITH_COST.values()) <= MOST


@pytest.mark.usefixtures("_history")
def test_nothing_of_the_url_table_has_more_than_eight_queries_or_60_kb_for_an_administrator(
    admin: User,
) -> None:
    store_rate("cpu", "1")
    store_pod("2026-10-01T00:00", "2026-10-02T00:00", group="team-a")
    make("2026-10", "2026-11-10T00:00")
    person, over, answered, packed = browser(admin), {}, 0, {"Accept-Encoding": "gzip"}
    for name, address in page_addresses(uid="uid-team-a-job-0007").items():
        with CaptureQueriesContext(connection) as queries:
            answer = person.get(address, headers=packed)
            size = len(b"".join(answer) if answer.streaming else answer.content)
        answered += answer.status_code == 200
        if (query_count := count_queries(queries)) > MOST or size > MOST_BYTES:
            over[name] = query_count, size
    assert (over, answered > 30) == ({}, True)
    program, answered = api_client(admin), 0
    program.get("/api/v1/jobs")
    for name, address in api_reads(uid="uid-team-a-job-0007").items():
        with CaptureQueriesContext(connection) as queries:
            answer = program.get(address + EXAMPLES[name].queries[0])
            b"".join(answer) if answer.streaming else answer.content
        answered += answer.status_code == 200
        if (query_count := count_queries(queries)) > MOST:
            over[name] = query_count, 0
    assert (over, answered > 50) == ({}, True)


@pytest.mark.parametrize("address", ["/usage/pods/?", "/usage/?", "/api/v1/usage/summary?"])
def test_fifty_namespaces_cost_no_more_queries_than_one(alice: User, address: str) -> None:
    caller = api_client(alice) if address.startswith("/api/") else browser(alice)
    counted = []
    for times in (1, 1, 50):
        with CaptureQueriesContext(connection) as queries:
            assert caller.get(address + "namespace=team-a&" * times).status_code == 200
        counted.append(count_queries(queries))
    assert counted[1] == counted[2]


def test_shares_and_heat_map_of_utilization_cost_no_more_queries_than_others(admin: User) -> None:
    now = timezone.now()
    begin = now - timedelta(days=40)
    CapacityChange.objects.create(controller="v1", at=begin, total=16, free=16)
    WatchCheckpoint.objects.create(name="capacity", position_at=now)
    refresh(now)
    person = browser(admin)
    counted = [
        _count(person, f"/utilization/?{query}")
        for query in ("", "step=hour", "window=7d&step=week")
    ]
    assert max(counted) <= MOST  # the last reads rows before its first quarter of an hour, too
