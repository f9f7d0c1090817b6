"""The spec in effect for a job that was edited while its pods run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.names import (
    ANNOTATION_FINGERPRINT,
    LABEL_ATTEMPT,
    LABEL_INSTANCE,
    parse_time,
)
from jobs.ipujob.spec import SessionLimits, parse_spec
from jobs.operator.effectivespec import (
    effective_spec,
    effective_spec_of_invalid,
    fingerprint_of,
    read_fingerprint,
    strays_of,
)
from jobs.operator.observed import instances_of
from jobs.operator.pods import from_manifest
from tests.builders.ipujobs import NOW, ipujob, launcher, observed, partition, worker

if TYPE_CHECKING:
    from jobs.operator.effectivespec import EffectiveSpec
    from jobs.operator.observed import Observed
    from tests.builders.ipujobs import IPUJobBuilder, PodBuilder


def stamped(pod: PodBuilder, job: IPUJobBuilder) -> PodBuilder:
    """The pod as it was made of `job`."""
    text = fingerprint_of(parse_spec(job.spec)).to_text()
    pod.manifest["metadata"]["annotations"] = {ANNOTATION_FINGERPRINT: text}
    return pod


def seen(job: IPUJobBuilder, made: IPUJobBuilder, attempt: int = 0, size: int = 4) -> Observed:
    built = job.build()
    pods = [stamped(pod.attempt(attempt), made) for pod in (worker(built), launcher(built))]
    return observed(built, *pods, partitions=(partition(size=size, attempt=attempt),))


def force_of(job: IPUJobBuilder, made: IPUJobBuilder, **more: Any) -> EffectiveSpec:
    return effective_spec(seen(job, made, **more), parse_spec(job.spec))


def edited() -> IPUJobBuilder:
    return ipujob().ipus(8)


def test_what_runs_or_has_ended_keeps_what_it_was_made_of() -> None:
    before = force_of(edited().with_status(launcherStatus="Pending"), ipujob())
    assert (before.spec.partition_size, before.target.partition_size) == (4, 8)
    for state in ("Running", "Completed", "Failed"):
        entry = [{"index": 0, "attempt": 0, "state": state}]
        fixed = force_of(edited().with_status(instances=entry), ipujob())
        assert (fixed.spec.partition_size, fixed.target.partition_size) == (4, 4)
        assert "the partition's size" in fixed.waiting


def test_pods_of_an_attempt_that_is_over_hold_nothing_back() -> None:
    job = edited().with_status(instances=[{"index": 0, "attempt": 1, "state": "Restarting"}])
    assert force_of(job, ipujob()).spec.partition_size == 8
    assert force_of(job, ipujob(), attempt=1).spec.partition_size == 4


def test_a_job_with_a_launcher_keeps_its_one_instance() -> None:
    job = ipujob().without_launcher().instances(3).running()
    assert force_of(job, ipujob().ipus(4)).spec.instances == 1
    assert force_of(job, ipujob().ipus(8).without_launcher()).spec.instances == 3


@pytest.mark.parametrize(
    ("size", "attempt", "want"), [(8, 0, False), (0, 0, False), (4, 0, True), (4, 1, False)]
)
def test_a_partition_of_another_size_makes_an_instance_outdated(
    size: int, attempt: int, want: bool
) -> None:
    job = edited()
    parts = (partition(size=size, attempt=attempt),)
    world = observed(job.build(), partitions=parts)
    force = effective_spec(world, parse_spec(job.spec))
    (instance,) = instances_of(world, force.spec, NOW)
    assert force.is_outdated(instance) is want


@pytest.mark.parametrize(("state", "want"), [("Pending", True), ("Running", False)])
def test_an_instance_that_has_started_is_never_outdated(state: str, want: bool) -> None:
    entries = [{"index": n, "attempt": 0, "state": state} for n in range(2)]
    job = ipujob().without_launcher().instances(2).with_status(instances=entries)
    made = ipujob().without_launcher().instances(2)
    job.with_template(containers=[{"name": "main", "image": "app:2"}])
    built = job.build()
    world = observed(built, stamped(worker(built), made), partitions=(partition(),))
    force = effective_spec(world, parse_spec(job.spec))
    first, _ = instances_of(world, force.spec, NOW)
    assert force.is_outdated(first) is want


STAMP = fingerprint_of(parse_spec(ipujob().spec)).to_text()


NO_STAMPS: tuple[dict[str, object], ...] = (
    *(
        {name: wrong}
        for name in ("size", "workers", "slots")
        for wrong in ("x", None, 1.5, [], 2**64)
    ),
    *({name: wrong} for name in ("launcher", "template") for wrong in (None, 1, [], {})),
    *({"size": 65}, {"workers": 1001}, {"workers": 10**9}),
)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1", "[]", "{}", "null", '{"size": null}', "[" * 100_000),
        *(json.dumps(json.loads(STAMP) | change) for change in NO_STAMPS),
        STAMP.replace('"size":4', '"size":1e999'),
        STAMP.replace('"size":4', f'"size":{"9" * 5000}'),
    ],
)
def test_a_stamp_that_is_none_of_ours_is_none(text: str) -> None:
    assert read_fingerprint(text) is None


def test_a_stamp_says_at_least_one_worker_and_slot() -> None:
    spoiled = json.loads(STAMP) | {"workers": 0, "slots": -1}
    found = read_fingerprint(json.dumps(spoiled))
    assert found is not None
    assert (found.workers, found.slots) == (1, 1)
    assert read_fingerprint(STAMP) == fingerprint_of(parse_spec(ipujob().spec))


def test_a_pod_whose_annotation_was_edited_counts_as_made_from_the_written_spec() -> None:
    job = ipujob()
    world = seen(job, job)
    edited = json.dumps(json.loads(STAMP) | {"workers": 10**9, "template": "x"})
    pods = tuple(replace(pod, fingerprint=edited) for pod in world.pods)
    spec = effective_spec(replace(world, pods=pods), parse_spec(job.spec))
    assert spec.spec == parse_spec(job.spec)
    assert len(instances_of(world, spec.spec, NOW)[0].workers) == 1


@pytest.mark.parametrize("text", ["²", "", "-1", "1.0", "9" * 63, "1000000000"])
def test_a_number_of_a_pods_label_that_no_status_can_hold_counts_as_0(text: str) -> None:
    pod = worker(ipujob().build())
    pod.manifest["metadata"]["labels"] |= {LABEL_INSTANCE: text, LABEL_ATTEMPT: text}
    view = from_manifest(pod.manifest)
    assert (view.instance, view.attempt) == (0, 0)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "1969-12-31T00:00:00Z", 7]
)
def test_a_time_that_no_sum_can_take_counts_as_none(text: object) -> None:
    assert parse_time(text) is None


def invalid(**fields: Any) -> IPUJobBuilder:
    return ipujob().ipus(6).running().with_spec(**fields)


def judged(job: IPUJobBuilder, made: IPUJobBuilder, limits: SessionLimits | None = None) -> Any:
    built = job.build()
    pods = (stamped(worker(built), made), stamped(launcher(built), made))
    world = observed(built, *pods, **({"limits": limits} if limits else {}))
    return effective_spec_of_invalid(world, job.spec)


def test_of_an_invalid_spec_the_valid_policies_count() -> None:
    good = judged(invalid(cleanPodPolicy="All", activeDeadlineSeconds=60), ipujob())
    assert (good.plain["cleanPodPolicy"], good.deadline_seconds) == ("All", 60)
    assert (good.partition_size, good.has_launcher) == (4, True)
    bad = judged(invalid(cleanPodPolicy="Some", activeDeadlineSeconds=-1), ipujob())
    assert (bad.plain["cleanPodPolicy"], bad.deadline_seconds) == ("None", None)


def test_of_an_invalid_spec_the_ttl_of_a_session_counts() -> None:
    made = ipujob().interactive(600)
    longer = invalid(interactive={"ttl": 900}, launcher=None)
    assert judged(longer, made).ttl_seconds == 900
    assert judged(invalid(interactive={"ttl": "x"}, launcher=None), made).ttl_seconds == 600
    limited = SessionLimits(maximum_seconds=300)
    assert judged(longer, made, limited).ttl_seconds == 600, "as it was promised"


def test_an_invalid_job_of_several_instances_keeps_those_that_are_wanted() -> None:
    entries = [
        {"index": 0, "attempt": 0, "state": "Running"},
        {"index": 1, "attempt": 0, "state": "Running"},
        {"index": 2, "attempt": 1, "state": "Suspended"},
    ]
    made = ipujob().without_launcher().instances(3)
    job = ipujob().without_launcher().instances(3).ipus(6).with_status(instances=entries)
    built = job.build()
    world = observed(built, stamped(worker(built), made))
    found = effective_spec_of_invalid(world, job.spec)
    assert found is not None
    assert found.instances == 2


def test_an_invalid_job_without_pods_is_judged_by_nothing_and_ends_old_ones_only() -> None:
    job = invalid().with_status(instances=[{"index": 0, "attempt": 1, "state": "Restarting"}])
    built = job.build()
    assert effective_spec_of_invalid(observed(built), job.spec) is None
    pods = [worker(built).attempt(n) for n in range(3)]
    assert [pod.attempt for pod in strays_of(observed(built, *pods))] == [0]
