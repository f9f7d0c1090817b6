"""Polls while the database stays as it is read nothing, and no change is missed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ipuhub.models import RoleGrant, WatchCheckpoint
from ipuhub.recording.store import connection_arguments
from ipuhub.web.pollcache import LATEST_SECONDS
from jobs.ipujob.conditions import Reason
from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.contrib.auth.models import User
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
RENAME = "UPDATE jobs_jobrecord SET reason = 'IPUJobFailed', status = 'Failed'"
FAILED = 'data-state="Failed"'
_OF_SIGN_IN = 2  # the session and its user


@pytest.fixture
def recorder() -> Iterator[psycopg.Connection[Any]]:
    """Another process with its own connection."""
    arguments = connection_arguments(connection.settings_dict)
    with psycopg.connect(**arguments, autocommit=True) as made:
        yield made


def poll(client: Client, address: str, tag: str = "") -> Any:
    return client.get(address, headers=HTMX | ({"If-None-Match": tag} if tag else {}))


@pytest.mark.parametrize(
    "address",
    [
        "/jobs/",
        "/jobs/?status=Running",
        "/jobs/uid-team-a-train/",
        "/jobs/uid-team-a-train/pods/",
        "/jobs/uid-team-a-train/events/",
        "/partitions/",
        "/usage/pods/",
        "/usage/gaps/",
        "/usage/faults/",
        "/usage/reports/",
        "/audit/",
    ],
)
def test_an_unchanged_poll_asks_for_the_snapshot_alone(staff: Client, address: str) -> None:
    jobhistory.job(status="Completed", completed_at=timezone.now())
    tag = poll(staff, address)["ETag"]
    with CaptureQueriesContext(connection) as queries:
        answer = poll(staff, address, tag)
        query_count = len(queries.captured_queries)
    assert (answer.status_code, answer["ETag"], query_count) == (304, tag, _OF_SIGN_IN + 1)


def test_the_part_of_a_page_is_known_before_its_first_poll(staff: Client) -> None:
    """A part that a visit has just shown is not sent again three seconds later."""
    jobhistory.job()
    for address in ("/", "/jobs/", "/jobs/uid-team-a-train/", "/system/", "/usage/reports/"):
        page = staff.get(address)
        tag = page.content.decode().partition('data-etag="')[2].partition('"')[0]
        assert tag.startswith("W/&quot;"), address
        again = poll(staff, address, tag.replace("&quot;", '"'))
        assert again.status_code == 304, address
        assert staff.get(address, headers={"If-None-Match": page["ETag"]}).status_code == 200


def test_a_change_after_the_reading_is_seen(
    staff: Client, recorder: psycopg.Connection[Any]
) -> None:
    jobhistory.job()
    tag = poll(staff, "/jobs/")["ETag"]
    recorder.execute(RENAME)
    answer = poll(staff, "/jobs/", tag)
    assert (answer.status_code, FAILED in answer.text) == (200, True)
    assert poll(staff, "/jobs/", answer["ETag"]).status_code == 304


def test_a_change_that_was_under_way_during_the_reading_is_seen(
    staff: Client, recorder: psycopg.Connection[Any]
) -> None:
    """Its transaction is older than the reading, and ends after it."""
    jobhistory.job()
    with recorder.transaction():
        recorder.execute(RENAME)
        first = poll(staff, "/jobs/")
        assert FAILED not in first.text
        assert poll(staff, "/jobs/", first["ETag"]).status_code == 304
    answer = poll(staff, "/jobs/", first["ETag"])
    assert (answer.status_code, FAILED in answer.text) == (200, True)


@pytest.mark.parametrize("is_after", [False, True])
def test_a_change_amid_the_reading_is_seen(
    staff: Client, recorder: psycopg.Connection[Any], *, is_after: bool
) -> None:
    """It commits after the snapshot was requested: before the rows are read, or just after."""
    jobhistory.job()
    done = []

    def change(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        is_row = "jobs_jobrecord" in sql and not done
        if is_row and not is_after:
            done.append(recorder.execute(RENAME))
        found = execute(sql, *rest)
        if is_row and is_after:
            done.append(recorder.execute(RENAME))
        return found

    with connection.execute_wrapper(change):
        tag = poll(staff, "/jobs/")["ETag"]
    assert done
    with CaptureQueriesContext(connection) as queries:
        answer = poll(staff, "/jobs/", tag)
        query_count = len(queries.captured_queries)
    assert answer.status_code == (200 if is_after else 304)
    assert query_count > _OF_SIGN_IN + 1, "the rows were read again"


def test_what_rolls_back_changes_nothing(staff: Client, recorder: psycopg.Connection[Any]) -> None:
    jobhistory.job()
    tag = poll(staff, "/jobs/")["ETag"]
    with recorder.transaction(force_rollback=True):
        recorder.execute(RENAME)
        assert poll(staff, "/jobs/", tag).status_code == 304
    assert poll(staff, "/jobs/", tag).status_code == 304


def test_time_alone_changes_a_part_within_seconds(
    staff: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobhistory.job()
    now = timezone.now()
    WatchCheckpoint.objects.create(name="ipujobs", position_at=now - dt.timedelta(seconds=85))
    tag = poll(staff, "/jobs/")["ETag"]
    later = now + dt.timedelta(seconds=LATEST_SECONDS + 1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    answer = poll(staff, "/jobs/", tag)
    assert (answer.status_code, "alert-warning" in answer.text) == (200, True)


def test_who_loses_a_namespace_gets_its_jobs_taken_away(alice: User) -> None:
    jobhistory.job()
    client = browser(alice)
    tag = poll(client, "/jobs/")["ETag"]
    assert poll(client, "/jobs/", tag).status_code == 304
    RoleGrant.objects.filter(user=alice).delete()
    answer = poll(client, "/jobs/", tag)
    assert (answer.status_code, "train" in answer.text) == (200, False)


def test_the_tag_of_another_reader_or_filter_is_of_no_use(alice: User, staff: Client) -> None:
    jobhistory.job()
    tag = poll(browser(alice), "/jobs/")["ETag"]
    assert poll(staff, "/jobs/", tag).status_code == 200
    assert poll(browser(alice), "/jobs/?namespace=team-a", tag).status_code == 200


def test_the_place_of_a_waiting_job_is_looked_up_at_each_poll(staff: Client) -> None:
    """The proxy says it, and no snapshot of PostgreSQL covers that."""
    jobhistory.job(status="Pending", reason=Reason.NO_CAPACITY.value, started_at=None)
    address = "/jobs/uid-team-a-train/"
    tag = poll(staff, address)["ETag"]
    with CaptureQueriesContext(connection) as queries:
        poll(staff, address, tag)
        query_count = len(queries.captured_queries)
    assert query_count > _OF_SIGN_IN + 1


def test_a_page_of_the_api_is_known_while_no_row_changes(
    staff: Client, recorder: psycopg.Connection[Any]
) -> None:
    jobhistory.job(status="Running", completed_at=None)
    pod = store_pod("2025-11-01T00:00", "2025-11-01T01:00", job_uid="uid-team-a-train")
    store_partition("2025-11-01T00:00", "2025-11-01T01:00", job_uid="uid-team-a-train")
    end = f"UPDATE usage_podlifetime SET finished_at = NULL WHERE id = {pod.pk}"
    held = "/api/v1/usage/partitions?month=2025-11"
    # Lifetimes have a header about purges, too, and a month its report, whose zone it has.
    more = {"/api/v1/usage/lifetimes": 1, held: 1}
    for address, change in (
        ("/api/v1/jobs", RENAME),
        ("/api/v1/jobs/uid-team-a-train/usage", "UPDATE usage_podlifetime SET micro_ipus = 7"),
        ("/api/v1/usage/lifetimes", end),
        (held, "UPDATE partitions_partitionlifetime SET size = 8"),
    ):
        tag = staff.get(address)["ETag"]
        with CaptureQueriesContext(connection) as queries:
            answer = staff.get(address, headers={"If-None-Match": tag})
            query_count = len(queries.captured_queries)
        assert answer.status_code == 304, address
        assert query_count == _OF_SIGN_IN + 1 + more.get(address, 0)
        recorder.execute(change)
        assert staff.get(address, headers={"If-None-Match": tag}).status_code == 200, address


def test_what_costs_more_each_moment_is_read_again(
    staff: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobhistory.job(status="Running", completed_at=None)
    store_rate("cpu", "100")
    store_pod("2026-11-01T00:00", job_uid="uid-team-a-train")
    store_partition("2026-11-01T00:00", job_uid="uid-team-a-train")
    now = timezone.now().replace(second=5)
    monkeypatch.setattr(timezone, "now", lambda: now)
    usage = "/api/v1/jobs/uid-team-a-train/usage"
    for address in ("/api/v1/jobs", "/api/v1/usage/lifetimes", "/api/v1/usage/partitions", usage):
        tag = staff.get(address)["ETag"]
        monkeypatch.setattr(timezone, "now", lambda: now + dt.timedelta(seconds=60))
        assert staff.get(address, headers={"If-None-Match": tag}).status_code == 200, address
        monkeypatch.setattr(timezone, "now", lambda: now)


@pytest.mark.parametrize("is_of_pod", [True, False])
def test_usage_of_a_job_grows_until_its_last_pod_and_partition_have_ended(
    staff: Client, monkeypatch: pytest.MonkeyPatch, *, is_of_pod: bool
) -> None:
    """Neither one that ended, nor an end that is still to come, tells of the others."""
    jobhistory.job()
    own: dict[str, Any] = {"job_uid": "uid-team-a-train"}
    later, over = "2026-11-02T00:00", "2026-11-01T01:00"
    store_pod("2026-11-01T00:00", later if is_of_pod else over, **own)
    store_pod("2026-11-01T00:30", over, **own)
    store_partition("2026-11-01T00:00", over if is_of_pod else later, **own)
    found = []
    for minute in ("01T02:00", "01T02:01", "02T00:00", "02T00:01"):
        now = at(f"2026-11-{minute}")
        monkeypatch.setattr(timezone, "now", lambda now=now: now)
        tag = found[-1]["ETag"] if found else ""
        headers = {"If-None-Match": tag} if tag else {}
        found.append(staff.get("/api/v1/jobs/uid-team-a-train/usage", headers=headers))
    assert [each.status_code for each in found] == [200, 200, 200, 304]
    assert found[-1]["X-As-Of"] == "2026-11-02T00:01:00Z"
