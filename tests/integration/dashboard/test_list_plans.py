"""No page about partitions, and no part of the overview, scans the history."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.actions.auditlist import visible_entries
from dashboard.actions.rolechanges import read_role_changes
from dashboard.overview.history import LiveJobs, ended_jobs, read_reach
from ipuhub.web.access import Scope
from ipuhub.web.keyset import Order, read_page
from jobs.models import JobRecord
from partitions.models import PartitionLifetime
from partitions.selectors import MachinePlace, partitions_on, visible_partitions
from tests.builders.fleetrows import NOON
from tests.builders.roles import grant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.django_db
ADMIN, USER = Scope(None), Scope(frozenset({"ns-7"}))
ORDER = Order(("reserved_at", "id"))
ROWS = 8000
EVERY = dt.timedelta(minutes=5)
HISTORY = {"partitions_partitionlifetime", "jobs_jobrecord"}
SINCE = NOON - dt.timedelta(days=1)
READS: dict[str, Callable[[], Any]] = {
    "all": lambda: read_page(visible_partitions(ADMIN), ORDER, "", 50),
    "own": lambda: read_page(visible_partitions(USER), ORDER, "", 50),
    "held": lambda: read_page(visible_partitions(ADMIN).filter(released_at=None), ORDER, "", 50),
    "own held": lambda: read_page(visible_partitions(USER).filter(released_at=None), ORDER, "", 50),
    "ended": lambda: ended_jobs(ADMIN, 8, SINCE),
    "own ended": lambda: ended_jobs(USER, 8, SINCE),
    "ended and active": lambda: ended_jobs(ADMIN, 8, SINCE, unfinished=500),
    "own ended and active": lambda: ended_jobs(USER, 8, SINCE, unfinished=500),
    "held in a day": lambda: read_reach(SINCE, NOON),
    "held in a day, by group": lambda: read_reach(SINCE, NOON, LiveJobs(ADMIN, (), ["u1", "u2"])),
    "on a machine": lambda: partitions_on(ADMIN, MachinePlace("v1", "ag0"), SINCE, 100),
    "own on an IPU": lambda: partitions_on(USER, MachinePlace("v1", "ag0", 3), SINCE, 100),
}


def write_history() -> None:
    """One holding and one job in five minutes, of 100 namespaces; one in 400 has not ended.

    Two days are a fourteenth of it: were they a third, reading the whole would cost as much.
    """
    partitions, jobs = [], []
    for number in range(ROWS):
        began = NOON - number * EVERY
        ended = began + dt.timedelta(minutes=1) if number % 400 else None
        common: dict[str, Any] = {"namespace": f"ns-{number % 100}", "updated_at": began}
        partitions.append(
            PartitionLifetime(
                key=f"k{number}",
                job_uid=f"u{number}",
                size=4,
                phase="released" if ended else "active",
                reserved_at=began,
                released_at=ended,
                **common,
            )
        )
        jobs.append(JobRecord(uid=f"u{number}", created_at=began, completed_at=ended, **common))
    PartitionLifetime.objects.bulk_create(partitions)
    JobRecord.objects.bulk_create(jobs)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE partitions_partitionlifetime, jobs_jobrecord")


def test_everything_is_read_by_an_index() -> None:
    write_history()
    for name, read in READS.items():
        reads = list(scans(plan_of(read)))
        assert any("Index" in node for node, _ in reads), name
        # What is not of the history is a handful of rows.
        assert not [table for node, table in reads if node == "Seq Scan" and table in HISTORY], name


def test_a_machine_that_holds_nothing_does_not_read_the_whole_history() -> None:
    write_history()
    # What began in two days, and what is held.
    days = dt.timedelta(days=2) // EVERY + ROWS // 400
    for name in ("on a machine", "own on an IPU"):
        assert rows_read(plan_of(READS[name], "ANALYZE, ")) <= days, name


def plan_of(read: Callable[[], Any], how: str = "") -> dict[str, Any]:
    """Return PostgreSQL's plan of the one query of `read`."""
    with CaptureQueriesContext(connection) as queries:
        read()
    (query,) = queries.captured_queries
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN ({how}FORMAT JSON) " + query["sql"])
        ((found,),) = cursor.fetchone()
    plan: dict[str, Any] = found["Plan"]
    return plan


def rows_read(plan: dict[str, Any]) -> int:
    """Return the number of rows at which the nodes that read a table looked."""
    removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    here = plan["Actual Rows"] + removed if plan.get("Relation Name") else 0
    return int(here) + sum(map(rows_read, plan.get("Plans", ())))


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and table of each node below `plan`."""
    yield plan["Node Type"], plan.get("Relation Name", "")
    for below in plan.get("Plans", ()):
        yield from scans(below)


ENTRIES: Final = 20_000
WRITE_AUDIT: Final = """
INSERT INTO ipuhub_auditentry (at, user_id, user_name, kubernetes_user, via, kind, action,
  namespace, name, uid, change, outcome, message)
SELECT %s::timestamptz - number * interval '1 minute', %s, 'u', '', 'page',
  CASE WHEN number > %s THEN 'role' ELSE 'job' END, 'grant', 'ns-' || number %% 100, 'n', '', '{}',
  'accepted', ''
FROM generate_series(1, %s) AS number
"""


def test_the_audit_is_read_by_an_index_whoever_reads_it() -> None:
    """A user who sees half of the jobs, one namespace of them, or what they changed themselves; and
    administrators the changes of roles, which are older than all of jobs."""
    make, users = get_user_model().objects.create_user, {}
    for name, namespaces in {"many": range(50), "few": [7], "none": []}.items():
        users[name] = make(name)
        for number in namespaces:
            grant(users[name], "viewer", f"ns-{number}")
    with connection.cursor() as cursor:
        cursor.execute(WRITE_AUDIT, [NOON, make("others").pk, ENTRIES // 2, ENTRIES])
        for user in users.values():
            cursor.execute(WRITE_AUDIT, [NOON, user.pk, 0, 3])
        cursor.execute("ANALYZE ipuhub_auditentry")
    lists = {name: visible_entries(user) for name, user in users.items()}
    most = dict.fromkeys(lists, ENTRIES // 3) | {"roles": 200}
    for name, rows in (lists | {"roles": read_role_changes()}).items():
        plan = plan_of(partial(read_page, rows, Order(("at", "id")), "", 50), "ANALYZE, ")
        assert "Seq Scan" not in {node for node, _ in scans(plan)}, name
        assert rows_read(plan) <= most[name], name
