"""Sample jobs are valid IPUJobs of every size, team and outcome, and repeatable."""

from __future__ import annotations

from random import Random

from devcluster.demo.samples import (
    SIZES,
    TEAMS,
    Outcome,
    draw_job,
    job_manifest,
    namespace_manifest,
)
from jobs.ipujob.validation import problems


def drawn(seed: int, count: int = 500) -> list:
    random = Random(seed)
    return [draw_job(random, number, 5.0, 120.0) for number in range(count)]


def test_every_sample_job_passes_the_operators_rules() -> None:
    judged = [problems(job.name, job_manifest(job)["spec"]) for job in drawn(1)]
    assert [found for found in judged if found] == []


def test_the_stream_has_every_size_team_and_outcome_and_keeps_to_its_durations() -> None:
    jobs = drawn(2)
    assert {job.ipus for job in jobs} == set(SIZES)
    assert {job.team.namespace for job in jobs} == {team.namespace for team in TEAMS}
    assert {job.outcome for job in jobs} == set(Outcome)
    assert len({team.group for team in TEAMS}) > 2
    assert all(5.0 <= job.seconds <= 120.0 for job in jobs)
    assert len({(job.team.namespace, job.name) for job in jobs}) == len(jobs)


def test_one_seed_is_one_stream() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_a_namespace_says_its_group_and_that_it_is_a_sample() -> None:
    labels = namespace_manifest(TEAMS[0])["metadata"]["labels"]
    assert labels == {"ipuhub.io/group": TEAMS[0].group, "ipuhub.io/sample": "true"}
