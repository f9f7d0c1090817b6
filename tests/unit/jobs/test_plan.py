"""What the plan says in each situation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.actions import (
    CreateChild,
    DeleteChild,
    EndPod,
    EnsurePartition,
    Kind,
    PatchStatus,
    Plan,
    ReleasePartition,
    SetFinalizers,
)
from jobs.conditions import SENTENCES, Reason
from jobs.observed import Fault
from jobs.plan import plan
from tests.builders.ipujobs import (
    NOW,
    at,
    children,
    ipujob,
    key_of,
    launcher,
    observed,
    partition,
    worker,
)

if TYPE_CHECKING:
    from jobs.observed import Observed
    from tests.builders.ipujobs import (
        IPUJobBuilder,
    )


def steps(planned: Plan) -> list[str]:
    return [step.name for step in planned.steps]


def created(planned: Plan) -> list[str]:
    return [
        f"{a.kind} {a.manifest['metadata']['name']}"
        for a in planned.actions
        if isinstance(a, CreateChild)
    ]


def status(planned: Plan) -> dict[str, Any]:
    (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
    return patch.status


def truth(planned: Plan) -> tuple[str, str, str]:
    """Type, reason and message of the condition that becomes True."""
    (now_true,) = [c for c in status(planned)["conditions"] if c["status"] == "True"]
    return now_true["type"], now_true["reason"], now_true["message"]


def up(job: IPUJobBuilder, *pods: Any, **more: Any) -> Observed:
    """A job with an active partition and its children."""
    return observed(job.build(), *pods, partitions=(partition(),), with_children=True, **more)


def test_a_new_job_gets_its_finalizer_before_its_partition() -> None:
    planned = plan(observed(ipujob().without_finalizer().build()), NOW)
    assert planned.actions == (
        SetFinalizers(("ipu.finalizers.graphcore.ai",)),
        EnsurePartition(0, 0, 4),
    )
    assert planned.steps[1].needs_previous


def test_other_finalizers_stay() -> None:
    job = ipujob().without_finalizer().build()
    job["metadata"]["finalizers"] = ["other"]
    assert plan(observed(job), NOW).actions[0] == SetFinalizers(
        ("other", "ipu.finalizers.graphcore.ai")
    )


def test_the_way_up_after_the_partition_is_children_workers_launcher() -> None:
    planned = plan(observed(ipujob().workers(2).build(), partitions=(partition(),)), NOW)
    assert steps(planned) == ["children", "workers", "launcher", "status"]
    assert created(planned) == [
        "ConfigMap sample-launcher",
        "ServiceAccount sample-launcher",
        "Role sample-launcher",
        "RoleBinding sample-launcher",
        "Pod sample-worker-0",
        "Pod sample-worker-1",
        "Pod sample-launcher",
    ]
    assert all(step.needs_previous for step in planned.steps[:3])
    assert status(planned)["iPUPartitionCreated"] is True


def test_a_job_without_a_launcher_needs_nothing_but_its_workers() -> None:
    job = ipujob().without_launcher().instances(2).workers(2)
    parts = (partition(0), partition(1))
    planned = plan(observed(job.build(), partitions=parts), NOW)
    assert created(planned) == [f"Pod sample-worker-{n}" for n in range(4)]


def test_each_instance_gets_a_partition_and_starts_on_its_own() -> None:
    job = ipujob().without_launcher().instances(2).build()
    both = plan(observed(job), NOW)
    assert both.actions == (EnsurePartition(0, 0, 4), EnsurePartition(1, 0, 4))
    first = plan(observed(job, partitions=(partition(0),)), NOW)
    assert EnsurePartition(1, 0, 4) in first.actions
    assert created(first) == ["Pod sample-worker-0"]


def test_only_what_is_missing_is_created() -> None:
    job = ipujob().workers(2)
    planned = plan(up(job, worker(job.build(), 1).running()), NOW)
    assert created(planned) == ["Pod sample-worker-0", "Pod sample-launcher"]


def test_a_pass_that_asks_for_a_partition_leaves_the_status_to_the_next() -> None:
    assert steps(plan(observed(ipujob().build()), NOW)) == ["partitions"]


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
    assert truth(planned) == ("Pending", "NoCapacity", "4 needed, 0 free")
    assert status(planned)["lastMessage"] == "4 needed, 0 free"
    assert status(planned)["launcherStatus"] == "Pending"
    assert status(planned)["iPUPartitionCreated"] is False


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
    planned = plan(replace(up(job, *pods), partitions={0: taken}), at(60))
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
    assert truth(planned) == ("Pending", "ControllerUnavailable", "vipu:8090 is away")


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
    planned = plan(up(job, pod(job.build()), launcher(job.build())), NOW)
    kind, reason, message = truth(planned)
    assert (kind, reason) == ("Pending", want_reason)
    assert want_words in message


def test_the_two_words_of_a_failed_pull_are_one_write() -> None:
    job = ipujob()
    messages = {
        truth(plan(up(job, worker(job.build()).waiting(word), launcher(job.build())), NOW))
        for word in ("ErrImagePull", "ImagePullBackOff")
    }
    assert len(messages) == 1


def test_a_proxy_out_of_reach_is_the_reason_and_nobody_calls_it() -> None:
    planned = plan(observed(ipujob().build(), proxy_problem="connection refused"), NOW)
    assert truth(planned)[1] == "ProxyUnavailable"
    assert steps(planned) == ["status"]


def test_a_refused_object_is_the_reason() -> None:
    fault = Fault("CreateFailed", "Cannot create Pod x: exceeded quota")
    planned = plan(up(ipujob(), fault=fault), NOW)
    assert truth(planned) == ("Pending", "CreateFailed", "Cannot create Pod x: exceeded quota")


def test_objects_of_somebody_else_are_never_touched() -> None:
    job = ipujob().build()
    foreign = children(job, job_uid="uid-other")
    planned = plan(observed(job, partitions=(partition(),), children=foreign), at(30))
    assert truth(planned)[1] == "NameConflict"
    assert steps(planned) == ["status"]
    assert planned.requeue_after == 2


def test_what_is_left_of_a_job_of_the_same_name_is_no_news_for_half_a_minute() -> None:
    job = ipujob().build()
    left = children(job, job_uid="uid-before")
    planned = plan(observed(job, partitions=(partition(),), children=left), at(29))
    assert truth(planned)[1] == "IPUJobPending"
    assert steps(planned) == ["status"]
    assert planned.requeue_after == 2


def test_it_runs_when_the_launchers_command_runs() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    waiting = plan(up(job, worker(built).running(), launcher(built)), NOW)
    running = plan(up(job, worker(built).running(), launcher(built).running()), NOW)
    assert status(waiting).get("launcherStatus") is None  # still Pending
    assert status(running)["launcherStatus"] == "Running"
    assert status(running)["currentReplicas"] == 1
    assert status(running)["workersStatus"] == {"active": 1}


def test_without_a_launcher_it_runs_when_all_workers_have_been_ready() -> None:
    job = ipujob().without_launcher().workers(2)
    built = job.build()
    one = plan(up(job, worker(built, 0).running(), worker(built, 1)), NOW)
    both = plan(up(job, worker(built, 0).running(), worker(built, 1).exited()), NOW)
    assert status(one)["launcherStatus"] == "Pending"
    assert status(both)["launcherStatus"] == "Running"


def settled(job: IPUJobBuilder, *pods: Any) -> Observed:
    """The world after the status of the running job was written."""
    seen = up(job, *pods)
    patch = status(plan(seen, NOW))
    stored = {**seen.status(), **patch}
    return replace(seen, job={**(seen.job or {}), "status": stored})


def test_an_unchanged_world_needs_nothing() -> None:
    job = ipujob().workers(2)
    built = job.build()
    world = settled(
        job, worker(built, 0).running(), worker(built, 1).running(), launcher(built).running()
    )
    assert plan(world, at(1000)) == Plan()


def test_a_count_alone_waits_a_moment_and_comes_with_the_next_change() -> None:
    job = ipujob().workers(2)
    built = job.build()
    seen = settled(job, worker(built, 0).running(), worker(built, 1), launcher(built).running())
    more = up(
        job, worker(built, 0).running(), worker(built, 1).running(), launcher(built).running()
    )
    later = replace(more, job=seen.job)
    assert plan(later, at(0.5)) == Plan((), 1.5)
    assert status(plan(later, at(2)))["workersStatus"] == {"active": 2}


def test_the_end_is_written_alone_with_its_evidence() -> None:
    job = ipujob().running()
    built = job.build()
    planned = plan(up(job, worker(built).running(), launcher(built).exited(3)), NOW)
    assert steps(planned) == ["decide"]
    assert truth(planned) == (
        "Failed",
        "IPUJobFailed",
        "IPUJob default/sample has failed: sample-launcher has exited with code 3.",
    )
    assert status(planned)["instances"] == [
        {"index": 0, "attempt": 0, "state": "Failed", "reason": "IPUJobFailed", "exitCode": 3}
    ]
    assert status(planned)["completionTime"] == "2026-03-01T12:00:00Z"


def test_success_says_what_the_published_operator_said() -> None:
    job = ipujob().running()
    built = job.build()
    planned = plan(up(job, worker(built).running(), launcher(built).exited(0)), NOW)
    assert truth(planned)[:2] == ("Succeeded", "IPUJobSucceeded")
    assert status(planned)["launcherStatus"] == "Completed"
    assert status(planned)["lastMessage"] == "All instances done"
    assert status(planned)["currentReplicas"] == 0


def test_without_a_launcher_the_exit_is_all_workers() -> None:
    job = ipujob().without_launcher().workers(2).running()
    built = job.build()
    going_on = plan(up(job, worker(built, 0).exited(1), worker(built, 1).running()), NOW)
    ended = plan(up(job, worker(built, 0).exited(1), worker(built, 1).exited(0)), NOW)
    assert status(going_on).get("launcherStatus") is None
    assert status(ended)["launcherStatus"] == "Failed"


@pytest.mark.parametrize(
    ("pods", "want_words"),
    [
        (lambda j: [launcher(j).running()], "sample-worker-0 is gone"),
        (lambda j: [worker(j).running()], "launcher pod is gone"),
        (lambda j: [worker(j).running().deleting(), launcher(j).running()], "being deleted"),
        (lambda j: [worker(j).exited(137, "Evicted"), launcher(j).running()], "Evicted"),
        (lambda j: [worker(j).exited(137, "Evicted"), launcher(j).exited(1)], "Evicted"),
    ],
)
def test_a_pod_taken_from_a_running_job_is_worker_lost(pods: Any, want_words: str) -> None:
    job = ipujob().running()
    planned = plan(up(job, *pods(job.build())), NOW)
    assert truth(planned)[:2] == ("Failed", "WorkerLost")
    assert want_words in truth(planned)[2]
    assert created(planned) == []


def test_a_launcher_that_succeeded_settles_it_whatever_else_is_lost() -> None:
    job = ipujob().running()
    planned = plan(up(job, launcher(job.build()).exited(0)), NOW)
    assert status(planned)["launcherStatus"] == "Completed"


def test_a_partition_in_error_ends_the_attempt() -> None:
    job = ipujob().running()
    built = job.build()
    bad = partition(phase="error", message="IPU 3 is gone")
    seen = replace(up(job, worker(built).running(), launcher(built).running()), partitions={0: bad})
    assert truth(plan(seen, NOW))[:2] == ("Failed", "PartitionError")
    assert "IPU 3 is gone" in truth(plan(seen, NOW))[2]


def test_a_sleeping_worker_that_fails_ends_the_job_and_one_that_ends_well_does_not() -> None:
    job = ipujob().running()
    built = job.build()
    failed = plan(up(job, worker(built).exited(1), launcher(built).running()), NOW)
    ended = plan(up(job, worker(built).exited(0), launcher(built).running()), NOW)
    assert truth(failed)[2].endswith("sample-worker-0 ended before the launcher did.")
    assert status(ended).get("launcherStatus") is None


def test_a_worker_that_ends_before_the_launcher_starts_ends_the_job() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    planned = plan(up(job, worker(built).exited(0), launcher(built)), NOW)
    assert status(planned)["launcherStatus"] == "Failed"


def test_before_the_start_a_missing_pod_is_simply_made_again() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    planned = plan(up(job, launcher(job.build())), NOW)
    assert created(planned) == ["Pod sample-worker-0"]


def test_before_the_start_an_evicted_pod_is_deleted_to_be_made_again() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    planned = plan(up(job, worker(built).exited(137, "Evicted"), launcher(built)), NOW)
    assert DeleteChild(Kind.POD, "default", "sample-worker-0", "uid-sample-worker-0") in (
        planned.actions
    )
    assert created(planned) == []


def test_pods_of_another_attempt_go_before_the_partition_is_touched() -> None:
    job = ipujob().with_status(
        launcherStatus="Restarting",
        instances=[{"index": 0, "attempt": 1, "state": "Pending"}],
    )
    old = worker(job.build()).running()
    planned = plan(up(job, old), NOW)
    assert steps(planned)[0] == "unwanted pods"
    assert not any(isinstance(a, EnsurePartition | CreateChild) for a in planned.actions)
    assert EnsurePartition(0, 1, 4) in plan(up(job), NOW).actions


CLEAN_UP = [
    # cleanPodPolicy, worker, launcher -> want
    ("None", "running", [("EndPod", "sample-worker-0")]),
    ("Workers", "running", [("DeleteChild", "sample-worker-0")]),
    (
        "All",
        "running",
        [("DeleteChild", "sample-worker-0"), ("DeleteChild", "sample-launcher")],
    ),
    ("None", "ended", []),
    ("None", "unscheduled", [("DeleteChild", "sample-worker-0")]),
]


@pytest.mark.parametrize(("policy", "pod", "want"), CLEAN_UP)
@pytest.mark.parametrize("outcome", ["Completed", "Failed"])
def test_clean_up_of_a_finished_job(
    policy: str, pod: str, want: list[tuple[str, str]], outcome: str
) -> None:
    job = ipujob().clean(policy).finished(outcome)
    built = job.build()
    pods = {
        "running": worker(built).running(),
        "ended": worker(built).ended_by_operator(),
        "unscheduled": worker(built),
    }
    code = 0 if outcome == "Completed" else 1
    planned = plan(up(job, pods[pod], launcher(built).exited(code)), NOW)
    found = [
        (type(a).__name__, a.name) for a in planned.actions if isinstance(a, EndPod | DeleteChild)
    ]
    assert found == want


def test_17a_a_partition_is_released_only_when_every_pod_is_terminal() -> None:
    job = ipujob().finished()
    built = job.build()
    ending = worker(built).ended_by_operator(ended=False)
    held = plan(up(job, ending, launcher(built).exited()), NOW)
    free = plan(up(job, worker(built).ended_by_operator(), launcher(built).exited()), NOW)
    assert not any(isinstance(a, ReleasePartition) for a in held.actions)
    assert free.actions == (ReleasePartition(0),)


def test_17a_deletion_waits_for_pods_that_take_long_to_end() -> None:
    job = ipujob().running().deleted()
    slow = worker(job.build()).running().deleting()
    planned = plan(up(job, slow), NOW)
    assert planned.actions == ()
    assert planned.requeue_after == 10


def test_a_kept_partition_stays_until_the_job_is_deleted() -> None:
    job = ipujob().finished().keep_partition()
    built = job.build()
    kept = plan(up(job, worker(built).ended_by_operator(), launcher(built).exited()), at(9))
    assert not any(isinstance(a, ReleasePartition) for a in kept.actions)
    job.deleted()
    assert ReleasePartition(0) in plan(up(job), NOW).actions


def test_ended_sleepers_count_as_succeeded() -> None:
    job = ipujob().finished()
    built = job.build()
    seen = replace(
        up(job, worker(built).ended_by_operator(), launcher(built).exited()),
        partitions={0: partition(phase="released")},
    )
    assert status(plan(seen, at(60)))["workersStatus"] == {"succeeded": 1}


def test_the_order_down_is_launcher_workers_partition_finalizer() -> None:
    job = ipujob().running().deleted()
    built = job.build()
    both = plan(up(job, worker(built).running(), launcher(built).running()), NOW)
    assert [(s.name, s.needs_previous) for s in both.steps] == [
        ("end launcher", False),
        ("end workers", False),
    ]
    assert plan(up(job), NOW).actions == (ReleasePartition(0),)
    released = replace(up(job), partitions={0: partition(phase="released")})
    assert plan(released, NOW).actions == (SetFinalizers(()),)


def test_a_release_under_way_is_left_to_the_proxy_for_five_seconds() -> None:
    job = ipujob().running().deleted()
    releasing = partition(phase="releasing", asked_at=NOW, message="vipu:8090 is away")
    seen = replace(up(job), partitions={0: releasing})
    assert plan(seen, at(1)).actions == ()
    assert plan(seen, at(1)).requeue_after == 4
    assert ReleasePartition(0) in plan(seen, at(5)).actions
    waiting_long = replace(seen, partitions={0: replace(releasing, asked_at=at(10))})
    assert "vipu:8090 is away" in status(plan(waiting_long, at(11)))["lastMessage"]


def test_the_finalizer_stays_until_the_pods_are_gone_and_not_only_ended() -> None:
    job = ipujob().running().deleted()
    ended = worker(job.build()).exited().deleting()
    seen = replace(up(job, ended), partitions={0: partition(phase="released")})
    assert plan(seen, NOW).actions == ()


def test_17c_the_steps_down_do_not_depend_on_each_other() -> None:
    job = ipujob().running().deleted()
    built = job.build()
    left = children(built, has_owner=False)
    seen = observed(built, worker(built).exited(), partitions=(partition(),), children=left)
    planned = plan(seen, NOW)
    assert steps(planned) == ["end workers", "release", "orphans"]
    assert not any(step.needs_previous for step in planned.steps)


def test_the_proxys_word_is_needed_before_the_finalizer_goes() -> None:
    """A list without the partition may be older than the reservation."""
    job = ipujob().deleted()
    assert plan(observed(job.build()), NOW).actions == (ReleasePartition(0),)


def test_a_deletion_waits_for_a_proxy_out_of_reach_and_keeps_the_finalizer() -> None:
    job = ipujob().running().deleted()
    away = observed(job.build(), proxy_problem="connection refused")
    assert plan(away, NOW).actions == ()
    assert "connection refused" in status(plan(away, at(11)))["lastMessage"]


def test_a_deletion_that_takes_long_says_what_it_waits_for() -> None:
    job = ipujob().running().deleted()
    slow = worker(job.build()).running().deleting()
    assert "sample-worker-0" in status(plan(up(job, slow), at(11)))["lastMessage"]
    fault = Fault("ProxyUnavailable", "connection refused")
    assert "connection refused" in status(plan(up(job, fault=fault), at(11)))["lastMessage"]


def test_a_job_without_our_finalizer_that_is_deleted_gets_none_and_frees_what_it_holds() -> None:
    job = ipujob().without_finalizer().deleted()
    planned = plan(up(job), NOW)
    assert planned.actions == (ReleasePartition(0),)


def test_nothing_outlives_a_job_whose_finalizer_was_taken_off() -> None:
    built = ipujob().build()
    with_pod = observed(None, worker(built).running(), partitions=(partition(),), key=key_of(built))
    without = observed(None, partitions=(partition(),), key=key_of(built))
    assert [type(a) for a in plan(with_pod, NOW).actions] == [DeleteChild]
    assert plan(without, NOW).actions == (ReleasePartition(0),)


def test_an_invalid_spec_is_pending_and_says_what_to_write() -> None:
    planned = plan(observed(ipujob().ipus(6).build()), NOW)
    kind, reason, message = truth(planned)
    assert (kind, reason) == ("Pending", "InvalidSpec")
    assert "make it 4 or 8" in message
    assert steps(planned) == ["status"]


def test_an_invalid_spec_is_judged_again_once_it_is_changed() -> None:
    bad = observed(ipujob().ipus(6).build())
    stored = status(plan(bad, NOW))
    same = replace(bad, job={**(bad.job or {}), "status": stored})
    assert plan(same, at(100)) == Plan()
    fixed = ipujob().ipus(8).with_status(**stored).build()
    assert EnsurePartition(0, 0, 8) in plan(observed(fixed), at(100)).actions


@pytest.mark.parametrize("spec", [None, {}, {"workers": 3}, {"jobInstances": "x"}])
def test_a_job_that_cannot_be_understood_still_deletes(spec: Any) -> None:
    built = ipujob().deleted().build()
    built["spec"] = spec
    assert plan(observed(built), NOW).actions == (ReleasePartition(0),)
    gone = observed(built, partitions=(partition(phase="released"),))
    assert plan(gone, NOW).actions == (SetFinalizers(()),)


@pytest.mark.parametrize(
    "fields",
    [
        {"suspend": True},
        {"activeDeadlineSeconds": 5, "ttlSecondsAfterFinished": 1},
        {"restartPolicy": {"type": "Always", "backOffLimit": 2}},
    ],
)
def test_fields_of_later_policies_break_nothing(fields: dict[str, Any]) -> None:
    job = ipujob().with_spec(**fields)
    assert "workers" in steps(plan(observed(job.build(), partitions=(partition(),)), NOW))


def test_every_transition_is_an_event() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()

    def told(planned: Plan) -> list[tuple[str, bool]]:
        (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
        return [(str(e.reason), e.is_warning) for e in patch.events]

    first = plan(observed(ipujob().build(), partitions=(partition(),)), NOW)
    assert told(first) == [("IPUJobPending", False), ("PartitionActive", False)]
    assert ("IPUJobRunning", False) in told(
        plan(up(job, worker(built).running(), launcher(built).running()), NOW)
    )
    ended = ipujob().running()
    assert told(plan(up(ended, worker(built).running(), launcher(built).exited(1)), NOW)) == [
        ("IPUJobFailed", True)
    ]


def test_a_release_that_takes_time_is_an_event_once() -> None:
    stored: dict[str, Any] = {"iPUPartitionCreated": True}
    told = []
    for seconds, phase in enumerate(("active", "releasing", "released", "released")):
        job = ipujob().finished()
        built = job.build()
        built["status"] |= stored
        pods = (worker(built).ended_by_operator(), launcher(built).exited())
        parts = (partition(phase=phase, asked_at=at(seconds * 10)),)
        for action in plan(observed(built, *pods, partitions=parts), at(seconds * 10)).actions:
            if isinstance(action, PatchStatus):
                stored |= action.status
                told += [str(event.reason) for event in action.events]
    assert told == ["PartitionReleased"]


def test_a_partition_that_the_proxy_knows_nothing_of_is_released_in_the_status_too() -> None:
    held = [{"instance": 0, "id": "p-0", "controller": "vipu:8090", "state": "active"}]
    job = ipujob().finished().with_status(partitions=held, iPUPartitionCreated=True, ipus=4)
    built = job.build()
    pods = (worker(built).ended_by_operator(), launcher(built).exited())
    gone = partition(phase="released", id="", controller="", size=0)
    planned = plan(observed(built, *pods, partitions=(gone,)), at(60))
    assert status(planned)["partitions"] == [{**held[0], "state": "released"}]
    assert status(planned)["iPUPartitionCreated"] is False
    assert status(planned)["ipus"] == 0


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


def test_a_gone_cause_is_not_shown_for_ever() -> None:
    waits = partition(phase="waiting", id="", reason="NoCapacity", message="full", asked_at=NOW)
    stored = status(plan(observed(ipujob().build(), partitions=(waits,)), NOW))
    job = ipujob().with_status(**stored)
    built = job.build()
    planned = plan(up(job, worker(built).running(), launcher(built).running()), at(5))
    pending, running = status(planned)["conditions"]
    assert pending == {
        "type": "Pending",
        "status": "False",
        "reason": "IPUJobPending",
        "message": "IPUJob default/sample is waiting for resources to be ready.",
        "lastTransitionTime": "2026-03-01T12:00:05Z",
        "lastUpdateTime": "2026-03-01T12:00:05Z",
    }
    assert running["status"] == "True"
