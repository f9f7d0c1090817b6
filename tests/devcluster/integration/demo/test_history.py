"""The sample history in a real database: written by the recorders, once, and removable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.core.management import CommandError
from django.db import connection as django_connection
from django.db.models import Sum

from devcluster.demo.history import HistoryError, HistoryWriter, clear
from devcluster.demo.recording import clear_samples, sample_recorders, set_sample_rates
from devcluster.demo.samples import (
    CLUSTER,
    CONTROLLER,
    TEAMS,
    TOTAL_IPUS,
    Outcome,
    past_jobs,
    past_pods,
)
from ipuhub.management.demofolder import demo_url
from ipuhub.models import RecordFault
from ipuhub.recording.store import connection_arguments
from jobs.models import JobAttempt, JobRecord, JobTransition
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.rates import store_rate
from usage.models import PodLifetime, Rate
from usage.rates.linecosts import read_job_costs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.django_db(transaction=True)
BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
END = datetime(2026, 10, 12, 9, 30, tzinfo=UTC)
TABLES = (JobRecord, JobAttempt, JobTransition, PartitionLifetime, CapacityChange, PodLifetime)


@pytest.fixture
def connection() -> Iterator[psycopg.Connection[Any]]:
    arguments = connection_arguments(django_connection.settings_dict)
    with psycopg.connect(**arguments, autocommit=True) as opened:
        yield opened


def write(connection: psycopg.Connection[Any], end: datetime = END) -> HistoryWriter:
    writer = HistoryWriter(connection, sample_recorders(), BEGIN, end)
    writer.write()
    return writer


def counts() -> dict[str, int]:
    return {model.__name__: model.objects.count() for model in TABLES}


def test_what_was_planned_is_what_the_tables_say(connection: psycopg.Connection[Any]) -> None:
    jobs, pods = list(past_jobs(1, BEGIN, END)), list(past_pods(1, BEGIN, END))
    write(connection)
    assert JobRecord.objects.count() == len(jobs)
    assert PartitionLifetime.objects.count() == len(jobs)
    assert PodLifetime.objects.count() == len(pods) + sum(past.job.workers + 1 for past in jobs)
    for past in jobs[:50]:
        record = JobRecord.objects.get(uid=past.uid)
        assert (record.created_at, record.started_at) == (past.created, past.started)
        assert (record.group, record.ipus) == (past.job.team.group, past.job.ipus)
        ipus = PodLifetime.objects.filter(job_uid=past.uid).aggregate(n=Sum("micro_ipus"))["n"]
        assert ipus == past.job.ipus * 1_000_000
        worker = PodLifetime.objects.filter(job_uid=past.uid, role="worker").first()
        assert worker is not None
        assert worker.finished_at == past.ended + timedelta(seconds=1)
        assert worker.cpu_millicores == past.job.cpu_cores * 1000
        assert worker.memory_bytes == past.job.memory_gib * 2**30
        partition = PartitionLifetime.objects.get(job_uid=past.uid)
        assert (partition.size, partition.group) == (past.job.ipus, past.job.team.group)
        for row in (record, worker):
            assert (row.user, row.user_verified) == (past.job.user, True)
        assert partition.user == past.job.user
    assert {group for (group,) in PodLifetime.objects.values_list("group")} == {
        team.group for team in TEAMS
    }
    assert PodLifetime.objects.filter(claim="annotation").exclude(user="").exists()
    assert PodLifetime.objects.filter(gpus=1).exists()
    deleted = {past.uid for past in jobs if past.job.outcome is Outcome.DELETED}
    assert {j.uid for j in JobRecord.objects.filter(completed_at=None)} == deleted
    assert not RecordFault.objects.exists()


def test_nothing_is_open_or_in_the_future(connection: psycopg.Connection[Any]) -> None:
    write(connection)
    assert not PodLifetime.objects.filter(finished_at=None).exists()
    assert not PartitionLifetime.objects.filter(released_at=None).exists()
    assert not JobRecord.objects.filter(deleted_at=None).exists()
    assert not JobAttempt.objects.filter(ended_at=None).exists()
    for model, last in ((PodLifetime, "finished_at"), (JobRecord, "deleted_at")):
        assert not model.objects.filter(**{f"{last}__gt": END}).exists()
    newest = CapacityChange.objects.filter(controller=CONTROLLER).order_by("at").last()
    assert newest is not None
    assert (newest.total, newest.reachable) == (0, False)
    assert CapacityChange.objects.filter(total=TOTAL_IPUS).exists()


def test_written_again_it_changes_nothing_and_later_it_only_grows(
    connection: psycopg.Connection[Any],
) -> None:
    write(connection)
    first = counts()
    write(connection)
    assert counts() == first
    write(connection, END + timedelta(days=2))
    assert all(counts()[name] > number for name, number in first.items())


def test_clear_removes_all_of_it_and_nothing_else(connection: psycopg.Connection[Any]) -> None:
    write(connection)
    assert {uid for (uid,) in PodLifetime.objects.values_list("cluster_uid")} == {CLUSTER}
    now = datetime.now(UTC)
    mine = JobRecord.objects.create(
        uid="mine", cluster_uid="real", namespace="n", name="j", created_at=now, updated_at=now
    )
    JobTransition.objects.create(job=mine, at=now, state="Pending")
    PodLifetime.objects.create(
        uid="mine", cluster_uid="real", namespace="n", pod_name="p", created_at=now, updated_at=now
    )
    assert clear(connection) > 1000
    assert counts() == dict.fromkeys(counts(), 0) | {
        "JobRecord": 1,
        "JobTransition": 1,
        "PodLifetime": 1,
    }
    assert clear(connection) == 0


def test_the_samples_have_prices_and_those_of_somebody_else_stay(
    connection: psycopg.Connection[Any],
) -> None:
    write(connection)
    for _ in range(2):
        set_sample_rates(BEGIN.date(), END)
    uids = [past.uid for past in past_jobs(1, BEGIN, END)]
    costs = read_job_costs(uids, BEGIN, END, ZoneInfo("UTC"))
    assert {uid for uid, _ in costs} == set(uids)
    assert all(cost.money.amount > 0 for cost in costs.values())
    clear_samples(connection)
    assert not Rate.objects.exists()
    mine = store_rate("ipu", "7")
    set_sample_rates(BEGIN.date(), END)
    clear_samples(connection)
    assert list(Rate.objects.all()) == [mine]


def test_a_history_that_the_recorders_do_not_understand_is_refused_whole(
    connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devcluster.demo.history.pod_of", lambda _: {"metadata": {"uid": "x"}})
    with pytest.raises(HistoryError, match="pods do not fit this version"):
        write(connection)
    assert counts() == dict.fromkeys(counts(), 0)


def test_without_a_demo_the_command_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="start a demo with make demo"):
        demo_url(tmp_path)
