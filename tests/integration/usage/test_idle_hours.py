from __future__ import annotations

import pytest

from ipuhub.models import WatchCheckpoint
from partitions.models import CapacityChange
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.reading import make, rows_of
from usage.utilization.selectors import partition_runs, read_capacity

pytestmark = pytest.mark.django_db(transaction=True)


def _ours(began: str, ended: str | None, ipus: float, **fields: str) -> None:
    store_pod(began, ended, ipus=ipus, **{"job_uid": "j", "partition": "p", **fields})


def _idle() -> list[str]:
    details, total = _of_partitions("details"), _of_partitions("summary")
    assert details == total
    assert {
        row["idle_ipu_hours"]
        for kind in ("details", "summary")
        for row in rows_of("2026-10", kind)
        if row["component"] != "partition"
    } <= {"0.00000"}
    return total


def test_a_partition_is_idle_while_no_pod_of_its_job_uses_it():
    store_partition("2026-10-01T00:00", "2026-10-01T10:00", size=4, job_uid="j", partition="p")
    _ours("2026-10-01T01:00", "2026-10-01T09:00", 2)
    _ours("2026-10-01T01:00", "2026-10-01T05:00", 2)
    make("2026-10", "2026-11-03T00:00")
    assert _idle() == ["16.00000"]


@pytest.mark.parametrize("other", [{"job_uid": "k"}, {"partition": "q"}, {"job_uid": ""}])
def test_other_jobs_and_partitions_use_nothing_of_it(other: dict[str, str]):
    store_partition("2026-10-01T00:00", "2026-10-01T10:00", size=1, job_uid="j", partition="p")
    _ours("2026-10-01T00:00", "2026-10-01T10:00", 1, **other)
    make("2026-10", "2026-11-03T00:00")
    assert _idle() == ["10.00000"]


def test_a_pod_of_another_namespace_that_claims_the_partition_uses_nothing_of_it_anywhere():
    fields = {"job_uid": "j", "partition": "p", "controller": "v1"}
    partition = store_partition("2026-10-01T00:00", "2026-10-01T10:00", size=4, **fields)
    CapacityChange.objects.create(controller="v1", at=at("2026-09-01T00:00"), total=4, free=0)
    WatchCheckpoint.objects.create(name="capacity", position_at=at("2026-11-03T00:00"))
    _ours("2026-10-01T00:00", "2026-10-01T10:00", 4, namespace="team-b")
    make("2026-10", "2026-11-03T00:00")
    assert _idle() == ["40.00000"]
    begin, end = at("2026-10-01T00:00"), at("2026-11-01T00:00")
    (month,) = read_capacity([begin], end).steps["v1"]
    assert (month.by_jobs, month.held_idle) == (40 * 3600, 40 * 3600)
    assert partition_runs([partition.pk], begin, end) == {}


def test_only_the_time_counts_in_which_both_were_there_and_in_the_month():
    store_partition("2026-09-30T20:00", "2026-10-01T04:00", size=1, job_uid="j", partition="p")
    store_partition("2026-10-02T00:00", "2026-10-02T04:00", size=1, job_uid="j", partition="p")
    _ours("2026-09-30T20:00", "2026-10-01T03:00", 1)
    _ours("2026-10-02T02:00", None, 1)
    make("2026-10", "2026-11-03T00:00")
    assert _of_partitions("details") == ["1.00000", "2.00000"]
    assert _of_partitions("summary") == ["3.00000"]


def test_more_ipus_than_there_are_make_no_negative_hours():
    store_partition("2026-10-01T00:00", "2026-10-01T10:00", size=1, job_uid="j", partition="p")
    _ours("2026-10-01T00:00", "2026-10-01T10:00", 64)
    make("2026-10", "2026-11-03T00:00")
    assert _idle() == ["0.00000"]


def _of_partitions(kind: str) -> list[str]:
    rows = [row for row in rows_of("2026-10", kind) if row["component"] == "partition"]
    return [row["idle_ipu_hours"] for row in rows]
