"""Kubernetes Events of jobs and their pods come to Postgres, bounded, and stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from ipuhub.kube.resources import EVENTS
from jobs.history import events
from jobs.history.events import event_row_of, store_events
from jobs.ipujob.names import IPUJOBS
from jobs.models import JobEvent
from tests.builders import jobhistory
from tests.builders.ipujobs import at, ipujob
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from jobs.history.events import EventRow
    from tests.integration.recorders.conftest import Site

NOW = at(0)


def event(name: str, kind: str, about: str, uid: str = "", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": kind, "name": about, "namespace": "default", "uid": uid},
        "type": "Normal",
        "reason": "Tried",
        "message": f"{name} was tried.",
        "lastTimestamp": "2026-11-20T10:00:00Z",
        **more,
    }


def row(number: int, **given: Any) -> EventRow:
    made = event_row_of(event(f"e-{number}", "Pod", "train-worker-0"), NOW)
    assert made is not None
    moment = NOW + timedelta(seconds=number)
    given = {"uid": f"u-{number}", "namespace": "team-a", "first_at": moment, **given}
    return replace(made, **{"last_at": given["first_at"], **given})


def store(*rows: EventRow) -> set[str]:
    connection.ensure_connection()
    with connection.connection.cursor() as cursor:
        return store_events(cursor, rows)


@pytest.mark.parametrize(
    ("kind", "name", "want"),
    [
        ("IPUJob", "train", ("train", "uid", "")),
        ("Pod", "train-launcher", ("train", "", "train-launcher")),
        ("Pod", "a-worker-0-worker-12", ("a-worker-0", "", "a-worker-0-worker-12")),
        ("Pod", "train-worker-x", None),
        ("Pod", "web-7f", None),
        ("Node", "train-launcher", None),
    ],
)
def test_an_event_is_of_a_job_or_of_a_pod_with_the_name_of_one(
    kind: str, name: str, want: tuple[str, str, str] | None
) -> None:
    found = event_row_of(event("e", kind, name, "uid"), NOW)
    assert (found and (found.job, found.job_uid, found.pod)) == want


@pytest.mark.parametrize("broken", [{"involvedObject": 3}, {"series": [], "count": "x"}, {}])
def test_an_event_with_odd_fields_is_read_or_left_out(broken: dict[str, Any]) -> None:
    found = event_row_of(event("e", "IPUJob", "train") | broken | {"message": "a\0" * 2000}, NOW)
    assert found is None or (found.count == 1 and len(found.message) == 1024)


@pytest.mark.django_db
def test_the_same_event_is_counted_up_and_one_of_no_recorded_job_waits() -> None:
    job = jobhistory.job(created_at=NOW)
    late = row(3, count=5, first_at=NOW)
    assert store(row(1), late, row(3, count=2), row(9, job="stranger")) == {"u-9"}
    kept = dict(JobEvent.objects.filter(job=job).values_list("uid", "count"))
    assert kept == {"u-1": 1, "u-3": 5}
    newer = jobhistory.job(uid="again", created_at=NOW + timedelta(hours=1))
    store(row(7200), row(10))
    assert list(newer.events.values_list("uid", flat=True)) == ["u-7200"]


@pytest.mark.django_db
def test_of_too_many_the_oldest_go_and_warnings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST", 3)
    job = jobhistory.job(created_at=NOW)
    other = jobhistory.job("other", created_at=NOW)
    store(row(100, job="other"))
    store(row(0, type="Warning"), *(row(number) for number in range(1, 6)))
    assert set(job.events.values_list("uid", flat=True)) == {"u-0", "u-4", "u-5"}
    assert other.events.count() == 1


async def test_events_are_kept_after_the_cluster_and_the_job_are_done_with_them(
    site: Site,
) -> None:
    client = site.lab.client
    await client.create(EVENTS, event("early", "Pod", "sample-worker-0", reason="Pulled"))
    async with site.probing() as prober:
        made = await site.make(ipujob().build())
        uid = made["metadata"]["uid"]
        await client.create(EVENTS, event("own", "IPUJob", "sample", uid, type="Warning"))
        await client.create(EVENTS, event("else", "Pod", "somebody-worker-0"))
        await eventually(lambda: JobEvent.objects.count() == 2)
        await client.patch(
            EVENTS, "own", {"count": 7, "lastTimestamp": "2026-11-20T11:00:00Z"}, "default"
        )
        await eventually(lambda: JobEvent.objects.filter(count=7).exists())
        await client.delete(EVENTS, "own", "default")
        await client.delete(IPUJOBS, "sample", "default")
        await client.patch(IPUJOBS, "sample", {"metadata": {"finalizers": None}}, "default")
        await eventually(lambda: JobEvent.objects.filter(job__deleted_at__isnull=False).exists())
        assert prober.parts.events.problem == ""
    found = JobEvent.objects.order_by("pod").values_list("pod", "reason", "type", "count")
    assert list(found) == [
        ("", "Tried", "Warning", 7),
        ("sample-worker-0", "Pulled", "Normal", 1),
    ]
