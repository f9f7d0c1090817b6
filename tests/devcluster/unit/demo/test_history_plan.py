"""The sample history is one world: no IPU is held twice, and its objects are the operator's own."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from devcluster.demo.history import (
    deletion_of,
    is_deleted,
    job_states,
    partition_of,
    pod_of,
    pods_of,
    tracker_of,
)
from devcluster.demo.samples import (
    TEAMS,
    TOTAL_IPUS,
    Outcome,
    first_of_month_before,
    free_ipus,
    past_jobs,
    past_pods,
)
from jobs.history.rows import row_of
from partitions.history.recorder import shard_of

NOW = datetime(2026, 11, 21, 11, 30, tzinfo=UTC)
BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
JOBS = list(past_jobs(1, BEGIN, NOW))
PODS = list(past_pods(1, BEGIN, NOW))


@pytest.mark.parametrize(
    ("months", "want"), [(0, (2026, 11)), (1, (2026, 10)), (10, (2026, 1)), (11, (2025, 12))]
)
def test_months_are_counted_back_over_the_year(months: int, want: tuple[int, int]) -> None:
    assert first_of_month_before(NOW, months) == datetime(*want, 1, tzinfo=UTC)


def test_the_same_seed_gives_the_same_history_and_a_later_end_only_adds() -> None:
    assert list(past_jobs(1, BEGIN, NOW)) == JOBS
    assert list(past_pods(1, BEGIN, NOW)) == PODS
    assert list(past_jobs(2, BEGIN, NOW)) != JOBS
    longer = list(past_jobs(1, BEGIN, NOW + timedelta(days=3)))
    assert {job.uid for job in JOBS} < {job.uid for job in longer}


def test_no_more_ipus_are_held_than_there_are() -> None:
    changes: Counter[datetime] = Counter()
    for past in JOBS:
        record = partition_of(past)
        assert record.reserved_at is not None
        assert record.released_at is not None
        changes[record.reserved_at] += record.size
        changes[record.released_at] -= record.size
    held = most = 0
    for _, change in sorted(changes.items()):
        held += change
        most = max(most, held)
    assert held == 0
    assert TOTAL_IPUS / 2 < most <= TOTAL_IPUS


def test_the_free_ipus_are_those_that_no_job_holds() -> None:
    points = dict(free_ipus(JOBS, BEGIN, NOW))
    assert points[BEGIN] == TOTAL_IPUS
    assert len(points) > 100
    entries = [*map(partition_of, JOBS)]
    for moment, free in list(points.items())[:200]:
        held = [
            entry.size
            for entry in entries
            if entry.reserved_at <= moment < (entry.released_at or NOW)
        ]
        assert free == TOTAL_IPUS - sum(held)


def test_a_map_of_the_tracker_holds_the_entries_of_its_jobs() -> None:
    shard = shard_of(tracker_of("sample-2026-10-01", JOBS[:40]))
    assert not shard.unreadable
    assert [entry.uid for entry in shard.entries] == [past.uid for past in JOBS[:40]]


def test_every_team_outcome_and_kind_of_pod_is_there_and_all_is_over() -> None:
    assert {past.job.team for past in JOBS} == set(TEAMS)
    assert {past.job.outcome for past in JOBS} == set(Outcome)
    assert {past.component for past in PODS} == {"notebook", "model_deploy"}
    assert any(past.gpus for past in PODS)
    assert any(past.started - past.created > timedelta(minutes=1) for past in JOBS)
    assert all(BEGIN <= past.created < past.started < past.ended < NOW for past in JOBS)
    assert len({past.uid for past in JOBS} | {past.uid for past in PODS}) == len(JOBS) + len(PODS)


def test_a_jobs_pods_carry_the_operators_stamp_and_share_its_ipus() -> None:
    for past in JOBS[:200]:
        pods = pods_of(past)
        stamps = [json.loads(pod["metadata"]["annotations"]["ipuhub.io/usage"]) for pod in pods]
        assert len(pods) == past.job.workers + 1
        assert sum(stamp["ipus"] for stamp in stamps) == past.job.ipus * 1_000_000
        assert {stamp["group"] for stamp in stamps} == {past.job.team.group}
        assert {stamp["partition"] for stamp in stamps} == {partition_of(past).id}
        assert len({pod["metadata"]["uid"] for pod in pods}) == len(pods)


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Outcome.COMPLETES, "Completed"),
        (Outcome.FAILS, "Failed"),
        (Outcome.OUT_OF_MEMORY, "Failed"),
        (Outcome.DELETED, "Running"),
    ],
)
def test_a_job_goes_through_its_states_to_its_outcome(outcome: Outcome, want: str) -> None:
    past = next(one for one in JOBS if one.job.outcome is outcome)
    rows = [row_of(job, past.job.team.group, NOW) for job in job_states(past)]
    assert [row.status for row in rows] == ["Pending", "Running", want][: len(rows)]
    assert rows[-1].status == want
    last = row_of(deletion_of(past, NOW), past.job.team.group, NOW, is_deleted=True)
    assert last.created_at == past.created
    assert last.size.ipus == past.job.ipus
    assert last.started_at == past.started
    assert last.completed_at == (None if is_deleted(past) else past.ended)
    assert last.deleted_at is not None
    assert (last.deleted_at == past.ended) == is_deleted(past)


def test_a_job_that_waited_says_for_what() -> None:
    past = next(one for one in JOBS if one.started - one.created > timedelta(minutes=1))
    waiting = row_of(job_states(past)[0], past.job.team.group, NOW)
    assert waiting.reason == "NoCapacity"
    assert str(past.job.ipus) in waiting.message


def test_other_pods_carry_the_annotation_of_the_product_that_made_them() -> None:
    claim = json.loads(pod_of(PODS[0])["metadata"]["annotations"]["primehub.io/usage"])
    assert {"component", "component_name", "group", "instance_type"} <= set(claim)
