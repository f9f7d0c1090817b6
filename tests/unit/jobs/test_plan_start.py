"""The start of a job: finalizer, partition, children, workers, launcher, and wait reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.operator.actions import (
    EnsurePartition,
    PatchStatus,
    SetFinalizers,
)
from jobs.operator.observed import Fault
from jobs.operator.plan import plan
from tests.builders.ipujobs import (
    NOW,
    at,
    children,
    ipujob,
    launcher,
    observed,
    partition,
    worker,
)
from tests.builders.plans import (
    condition_of,
    created,
    requests_in,
    status_of,
    steps,
    with_partition,
)


def test_a_new_job_gets_its_finalizer_before_its_partition() -> None:
    planned = plan(observed(ipujob().without_finalizer().build()), NOW)
    assert steps(planned) == ["finalizer", "try", "partitions"]
    assert planned.actions[0] == SetFinalizers(("ipu.graphcore.ai/finalizer",))
    assert planned.actions[-1] == EnsurePartition(0, 0, 4)
    assert all(step.needs_previous for step in planned.steps[1:])


def test_other_finalizers_stay() -> None:
    job = ipujob().without_finalizer().build()
    job["metadata"]["finalizers"] = ["other"]
    assert plan(observed(job), NOW).actions[0] == SetFinalizers(
        ("other", "ipu.graphcore.ai/finalizer")
    )


def test_the_finalizer_of_the_original_is_as_good() -> None:
    job = ipujob().without_finalizer().build()
    job["metadata"]["finalizers"] = ["ipu.finalizers.graphcore.ai"]
    assert not any(isinstance(a, SetFinalizers) for a in plan(observed(job), NOW).actions)


def test_the_way_up_after_the_partition_is_children_and_pods() -> None:
    planned = plan(observed(ipujob().workers(2).build(), partitions=(partition(),)), NOW)
    assert steps(planned) == ["children", "pods"]
    assert [step.name for step in planned.beside] == ["role", "binding"]
    assert created(planned) == [
        "ConfigMap sample-launcher",
        "ServiceAccount sample-launcher",
        "Pod sample-worker-0",
        "Pod sample-worker-1",
        "Pod sample-launcher",
        "Role sample-launcher",
        "RoleBinding sample-launcher",
    ]
    assert all(step.needs_previous for step in (*planned.steps, *planned.beside))
    assert isinstance(planned.steps[0].actions[-1], PatchStatus)  # no pod before it is written
    assert status_of(planned)["iPUPartitionCreated"] is True


def test_a_job_without_a_launcher_needs_nothing_but_its_workers() -> None:
    job = ipujob().without_launcher().instances(2).workers(2)
    parts = (partition(0), partition(1))
    planned = plan(observed(job.build(), partitions=parts), NOW)
    assert created(planned) == [f"Pod sample-worker-{n}" for n in range(4)]


def test_each_instance_gets_a_partition_and_starts_on_its_own() -> None:
    job = ipujob().without_launcher().instances(2).build()
    both = plan(observed(job), NOW)
    assert requests_in(both) == [EnsurePartition(0, 0, 4), EnsurePartition(1, 0, 4)]
    first = plan(observed(job, partitions=(partition(0),)), NOW)
    assert EnsurePartition(1, 0, 4) in first.actions
    assert created(first) == ["Pod sample-worker-0"]


def test_only_what_is_missing_is_created() -> None:
    job = ipujob().workers(2)
    planned = plan(with_partition(job, worker(job.build(), 1).running()), NOW)
    assert created(planned) == ["Pod sample-worker-0", "Pod sample-launcher"]


def test_a_pass_that_asks_for_a_partition_leaves_the_status_to_the_next() -> None:
    assert steps(plan(observed(ipujob().build()), NOW)) == ["try", "partitions"]


@pytest.mark.parametrize("phase", ["reserving", "creating"])
def test_a_partition_under_way_is_asked_for_again_after_five_seconds(phase: str) -> None:
    waiting = observed(ipujob().build(), partitions=(partition(phase=phase, asked_at=NOW),))
    assert plan(waiting, at(1)).requeue_after == 4
    assert "partitions" not in steps(plan(waiting, at(1)))
    assert "partitions" in steps(plan(waiting, at(5)))


def test_waiting_for_ipus_is_the_reason_and_the_last_message() -> None:
    waits = partition(
        phase="waiting", id="", reason="NoCapacity", message="4 needed, 0 free", asked_at=NOW
    )
    planned = plan(observed(ipujob().build(), partitions=(waits,)), NOW)
    assert condition_of(planned) == ("Pending", "NoCapacity", "4 needed, 0 free")
    assert status_of(planned)["lastMessage"] == "4 needed, 0 free"
    assert status_of(planned)["launcherStatus"] == "Pending"
    assert status_of(planned)["iPUPartitionCreated"] is False


@pytest.mark.parametrize(("reason", "want"), [("Fragmented", "Fragmented"), ("", "NoCapacity")])
def test_a_job_waits_for_the_reason_that_the_proxy_gives(reason: str, want: str) -> None:
    waits = partition(phase="waiting", id="", reason=reason, message="4 needed", asked_at=NOW)
    planned = plan(observed(ipujob().build(), partitions=(waits,)), NOW)
    assert condition_of(planned) == ("Pending", want, "4 needed")


def test_who_waits_for_ipus_asks_when_the_poll_wakes_all_and_not_by_a_timer_of_its_own() -> None:
    waits = partition(phase="waiting", id="", reason="NoCapacity", message="full", asked_at=NOW)
    asleep = plan(observed(ipujob().build(), partitions=(waits,)), at(60))
    awake = plan(observed(ipujob().build(), partitions=(replace(waits, asked_at=None),)), at(60))
    assert asleep.requeue_after is None
    assert "partitions" not in steps(asleep)
    assert "partitions" in steps(awake)


@pytest.mark.parametrize("phase", ["creating", "releasing", "released"])
def test_a_partition_taken_from_a_running_job_causes_no_hot_loop(phase: str) -> None:
    job = ipujob().running()
    built = job.build()
    taken = partition(phase=phase, asked_at=NOW)
    pods = (worker(built).running(), launcher(built).running())
    planned = plan(replace(with_partition(job, *pods), partitions={0: taken}), at(60))
    assert planned.requeue_after is None
    assert not any(isinstance(a, EnsurePartition) for a in planned.actions)


def test_an_instance_that_has_ended_gets_no_second_partition() -> None:
    job = ipujob().without_launcher().instances(2)
    built = job.build()
    pods = (worker(built, 0, 0).exited(), worker(built, 1, 1).running())
    parts = (partition(0, phase="released", asked_at=NOW), partition(1))
    planned = plan(observed(built, *pods, partitions=parts), at(60))
    assert not any(isinstance(a, EnsurePartition) for a in planned.actions)


def test_a_partition_in_error_is_not_asked_for_again_while_other_instances_run() -> None:
    built = ipujob().without_launcher().instances(2).build()
    parts = (partition(0, phase="error", asked_at=NOW), partition(1))
    planned = plan(observed(built, worker(built, 1, 1).running(), partitions=parts), at(60))
    assert planned.requeue_after is None
    assert not any(isinstance(a, EnsurePartition) for a in planned.actions)


def test_a_partition_that_hangs_on_the_way_is_the_reason() -> None:
    hangs = partition(
        phase="creating", reason="ControllerUnavailable", message="vipu:8090 is away", asked_at=NOW
    )
    planned = plan(observed(ipujob().build(), partitions=(hangs,)), NOW)
    assert condition_of(planned) == ("Pending", "ControllerUnavailable", "vipu:8090 is away")


@pytest.mark.parametrize(
    ("pod", "want_reason", "want_words"),
    [
        (lambda j: worker(j).unschedulable("0/4 nodes"), "Unschedulable", "0/4 nodes"),
        (lambda j: worker(j).waiting("ErrImagePull"), "ImagePullFailed", '"app:1"'),
        (lambda j: worker(j).waiting("ImagePullBackOff"), "ImagePullFailed", '"app:1"'),
        (
            lambda j: worker(j).waiting("CreateContainerConfigError", "no secret"),
            "ContainerConfigError",
            "no secret",
        ),
    ],
)
def test_a_pod_that_cannot_start_is_the_reason(pod: Any, want_reason: str, want_words: str) -> None:
    job = ipujob()
    planned = plan(with_partition(job, pod(job.build()), launcher(job.build())), NOW)
    kind, reason, message = condition_of(planned)
    assert (kind, reason) == ("Pending", want_reason)
    assert want_words in message


def test_a_worker_that_cannot_start_is_told_before_the_launcher_that_waits_for_it() -> None:
    job = ipujob()
    built = job.build()
    pods = (worker(built).unschedulable("full"), launcher(built).waiting("ErrImagePull"))
    assert condition_of(plan(with_partition(job, *pods), NOW))[1] == "Unschedulable"


def test_the_two_words_of_a_failed_pull_are_one_write() -> None:
    job = ipujob()
    messages = {
        condition_of(
            plan(with_partition(job, worker(job.build()).waiting(word), launcher(job.build())), NOW)
        )
        for word in ("ErrImagePull", "ImagePullBackOff")
    }
    assert len(messages) == 1


def test_a_registry_that_words_each_refusal_anew_is_quoted_once() -> None:
    job = ipujob()
    built = job.build()
    first, later = (worker(built).waiting("ErrImagePull", f"request {n} denied") for n in (1, 2))
    job.with_status(**status_of(plan(with_partition(job, first, launcher(built)), NOW)))
    assert "request 1" in job.manifest["status"]["lastMessage"]
    assert plan(with_partition(job, later, launcher(built)), at(590)).steps == ()


def test_the_trouble_of_another_image_is_not_told_in_the_words_of_the_first() -> None:
    condition = {"type": "Pending", "status": "True", "reason": "ImagePullFailed"}
    condition["message"] = 'Cannot pull image "old:1": no such image'
    job = ipujob().with_status(launcherStatus="Pending", conditions=[condition])
    pods = (worker(job.build()).waiting("ErrImagePull", "denied"), launcher(job.build()))
    assert '"app:1"' in condition_of(plan(with_partition(job, *pods), NOW))[2]


def test_a_proxy_out_of_reach_is_the_reason_and_nobody_calls_it() -> None:
    planned = plan(observed(ipujob().build(), proxy_problem="connection refused"), NOW)
    assert condition_of(planned)[1] == "ProxyUnavailable"
    assert steps(planned) == ["status"]


def test_a_proxy_out_of_reach_is_the_reason_only_while_a_partition_is_missing() -> None:
    job = ipujob().without_launcher().instances(2)
    both = (partition(0), partition(1))
    one = plan(observed(job.build(), partitions=both[:1], proxy_problem="refused"), NOW)
    assert condition_of(one)[1] == "ProxyUnavailable"
    all_there = plan(observed(job.build(), partitions=both, proxy_problem="refused"), NOW)
    assert condition_of(all_there)[1] == "IPUJobPending"


def test_a_refused_object_is_the_reason() -> None:
    fault = Fault("CreateFailed", "Cannot create Pod x: exceeded quota")
    planned = plan(with_partition(ipujob(), fault=fault), NOW)
    assert condition_of(planned) == (
        "Pending",
        "CreateFailed",
        "Cannot create Pod x: exceeded quota",
    )


def test_objects_of_somebody_else_are_never_touched() -> None:
    job = ipujob().build()
    foreign = children(job, job_uid="uid-other")
    planned = plan(observed(job, partitions=(partition(),), children=foreign), at(30))
    assert condition_of(planned)[1] == "NameConflict"
    assert steps(planned) == ["status"]
    assert planned.requeue_after == 2


def test_what_is_left_of_a_job_of_the_same_name_is_no_news_for_half_a_minute() -> None:
    job = ipujob().build()
    left = children(job, job_uid="uid-before")
    planned = plan(observed(job, partitions=(partition(),), children=left), at(29))
    assert condition_of(planned)[1] == "IPUJobPending"
    assert steps(planned) == ["status"]
    assert planned.requeue_after == 2


def test_it_runs_when_the_launchers_command_runs() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    waiting = plan(with_partition(job, worker(built).running(), launcher(built)), NOW)
    running = plan(with_partition(job, worker(built).running(), launcher(built).running()), NOW)
    assert status_of(waiting).get("launcherStatus") is None  # still Pending
    assert status_of(running)["launcherStatus"] == "Running"
    assert status_of(running)["currentReplicas"] == 1
    assert status_of(running)["workersStatus"] == {"active": 1}


def test_without_a_launcher_it_runs_when_all_workers_have_been_ready() -> None:
    job = ipujob().without_launcher().workers(2)
    built = job.build()
    one = plan(with_partition(job, worker(built, 0).running(), worker(built, 1)), NOW)
    both = plan(with_partition(job, worker(built, 0).running(), worker(built, 1).exited()), NOW)
    assert status_of(one)["launcherStatus"] == "Pending"
    assert status_of(both)["launcherStatus"] == "Running"
