"""Jobs whose pods cannot start: they are tried before they take IPUs, and do not hold IPUs
forever."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.rules import Patience
from jobs.operator.actions import ReleasePartition, TryPod
from jobs.operator.observed import Fault
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import condition_of, requests_in, status_of, steps, with_partition

if TYPE_CHECKING:
    from jobs.operator.actions import Plan
    from jobs.operator.observed import Observed
    from tests.builders.ipujobs import PodBuilder

FULL = Fault("QuotaExceeded", "Cannot create Pod sample-launcher: exceeded quota")


def tried(planned: Plan) -> list[str]:
    pods = [a.manifest for a in planned.actions if isinstance(a, TryPod)]
    return [pod["metadata"]["name"] for pod in pods]


def blocked(since: str = "2026-03-01T12:00:00Z", **more: Any) -> Observed:
    """A job whose worker has found no node since then."""
    entry = {"index": 0, "attempt": 0, "state": "Pending", "blockedSince": since}
    job = ipujob().with_status(launcherStatus="Pending", instances=[entry])
    built = job.build()
    return with_partition(job, worker(built).unschedulable("0/4 nodes"), launcher(built), **more)


def test_a_worker_and_the_launcher_are_tried_before_ipus_are_asked_for() -> None:
    planned = plan(observed(ipujob().workers(3).build()), NOW)
    assert steps(planned) == ["try", "partitions"]
    assert tried(planned) == ["sample-worker-0", "sample-launcher"]
    assert planned.steps[1].needs_previous
    (_, tried_launcher) = [a.manifest for a in planned.actions if isinstance(a, TryPod)]
    assert "serviceAccountName" not in tried_launcher["spec"], "it is not made yet"


def test_of_many_instances_one_is_tried_and_who_waits_for_ipus_is_not_tried_again() -> None:
    job = ipujob().without_launcher().instances(3).build()
    assert tried(plan(observed(job), NOW)) == ["sample-worker-0"]
    waits = tuple(partition(n, phase="waiting", id="") for n in range(3))
    assert tried(plan(observed(job, partitions=waits), NOW)) == []


def test_jobs_of_equal_pods_share_the_answer() -> None:
    def keys(job: Any) -> list[str]:
        return [a.key for a in plan(observed(job.build()), NOW).actions if isinstance(a, TryPod)]

    assert keys(ipujob("one")) == keys(ipujob("two"))
    assert keys(ipujob("one")) != keys(ipujob("two").workers(2))


def test_it_is_remembered_since_when_pods_cannot_start() -> None:
    job = ipujob()
    built = job.build()
    first = with_partition(job, worker(built).unschedulable("0/4 nodes"), launcher(built))
    (entry,) = status_of(plan(first, NOW))["instances"]
    assert entry["blockedSince"] == "2026-03-01T12:00:00Z"
    (entry,) = status_of(plan(with_partition(job, fault=FULL), NOW))["instances"]
    assert entry["blockedSince"] == "2026-03-01T12:00:00Z"
    # Once they can, it is forgotten.
    seen = blocked()
    running = with_partition(ipujob(), worker(built).running(), launcher(built).running())
    (entry,) = status_of(plan(replace(running, job=seen.job), at(30)))["instances"]
    assert "blockedSince" not in entry


def test_after_ten_minutes_the_partition_is_given_back() -> None:
    assert plan(blocked(), at(599)).requeue_after == 1
    planned = plan(blocked(), at(600))
    assert steps(planned) == ["decide"]
    condition, reason, message = condition_of(planned)
    assert (condition, reason) == ("Pending", "StartBlocked")
    assert message.startswith(
        "The pods could not start for 10 min. The partition is released and requested again at "
        "12:15:00 UTC. Pod sample-worker-0 cannot be scheduled"
    )
    (entry,) = status_of(planned)["instances"]
    assert (entry["attempt"], entry["restartAt"]) == (1, "2026-03-01T12:15:00Z")
    assert entry["lastExit"]["reason"] == "StartBlocked"
    assert "restartCount" not in status_of(planned) or status_of(planned)["restartCount"] == 0


def after_giving_up() -> Observed:
    seen = blocked()
    written = status_of(plan(seen, at(600)))
    return replace(seen, job={**(seen.job or {}), "status": {**seen.status(), **written}})


def test_its_pods_go_before_the_partition_and_it_says_so_during_the_pause() -> None:
    seen = after_giving_up()
    assert steps(plan(seen, at(601))) == ["end launcher", "end workers"]
    gone = replace(seen, pods=())
    planned = plan(gone, at(602))
    assert [a for a in planned.actions if isinstance(a, ReleasePartition)] == [ReleasePartition(0)]
    free = replace(gone, partitions={0: partition(phase="released")})
    again = plan(free, at(603))
    assert requests_in(again) == []
    for patch in (planned, again):
        patches = [a for a in patch.actions if hasattr(a, "status") and "conditions" in a.status]
        assert patches == [], "it says StartBlocked already"
    last = plan(free, at(900))
    assert steps(last)[:1] == ["try"]
    assert [one.attempt for one in requests_in(last)] == [1]


def test_without_end_where_the_administrator_says_so() -> None:
    planned = plan(blocked(patience=Patience(start_seconds=0)), at(90_000))
    assert "decide" not in steps(planned)


MADE = {"creationTimestamp": "2026-03-01T12:00:00Z"}
UNREADY = {"type": "Ready", "status": "False", "message": "containers with unready status: [main]"}


def slow(*pods: PodBuilder, **more: Any) -> Observed:
    """A job whose pods were made at noon."""
    for pod in pods:
        pod.manifest["metadata"] |= MADE
    return with_partition(ipujob().with_status(launcherStatus="Pending"), *pods, **more)


BUILT = ipujob().build()


@pytest.mark.parametrize(
    ("held_up", "want"),
    [
        (worker(BUILT).waiting("ContainerCreating"), "is Pending: ContainerCreating;"),
        (worker(BUILT).running().with_status(conditions=[UNREADY]), "is running but not Ready: co"),
        (worker(BUILT), "is Pending; kubectl describe pod sample-worker-0 tells more"),
    ],
)
def test_pods_that_are_there_and_do_not_start_give_the_partition_back_too(
    held_up: PodBuilder, want: str
) -> None:
    seen = slow(held_up, launcher(BUILT).waiting("PodInitializing"))
    assert plan(seen, at(1199)).requeue_after is None  # the operator looks again each ten minutes
    assert plan(seen, at(1200)).requeue_after == 600
    planned = plan(seen, at(1800))
    assert steps(planned) == ["decide"]
    _, reason, message = condition_of(planned)
    assert reason == "StartBlocked"
    prefix = (
        "The pods did not start in 30 min (IPUHUB_READY_HOLD_SECONDS). The partition is "
        "released and requested again at "
    )
    assert message.startswith(f"{prefix}12:35:00 UTC. Pod sample-worker-0 {want}")
    (entry,) = status_of(planned)["instances"]
    assert (entry["attempt"], entry["restartAt"]) == (1, "2026-03-01T12:35:00Z")
    sooner = replace(seen, patience=Patience(ready_seconds=60))
    assert plan(sooner, at(0)).requeue_after == 60
    assert "decide" not in steps(plan(sooner, at(59)))
    assert "decide" in steps(plan(sooner, at(60)))
    for never in (
        replace(seen, patience=Patience(ready_seconds=0)),
        replace(seen, partitions={0: partition(phase="creating")}),
    ):
        assert "decide" not in steps(plan(never, at(90_000)))


def test_what_has_started_is_not_given_up() -> None:
    unready = worker(BUILT).running().with_status(conditions=[UNREADY])
    seen = slow(unready, launcher(BUILT).running())
    assert "decide" not in steps(plan(seen, at(90_000)))


PREPARES = {"name": "data", "state": {"running": {"startedAt": "2026-03-01T12:00:05Z"}}}
PREPARED = {"name": "data", "state": {"terminated": {"finishedAt": "2026-03-01T14:00:00Z"}}}


def test_an_init_container_of_a_worker_has_the_time_it_takes() -> None:
    waits = worker(BUILT).waiting("PodInitializing")
    waits.manifest["spec"]["initContainers"] = [{"name": "data"}]
    late = (launcher(BUILT).waiting("PodInitializing"), at(7200 + 1799))
    assert "decide" not in steps(plan(slow(waits.with_status(**of(PREPARES)), late[0]), late[1]))
    ended = slow(waits.with_status(**of(PREPARED)), late[0])
    assert "decide" not in steps(plan(ended, late[1]))
    assert "decide" in steps(plan(ended, at(7200 + 1800)))
    waits.manifest["spec"]["initContainers"] = [{"name": "data", "restartPolicy": "Always"}]
    assert "decide" in steps(plan(slow(waits.with_status(**of(PREPARES)), late[0]), at(1800)))


def of(container: dict[str, Any]) -> dict[str, Any]:
    return {"initContainerStatuses": [container]}


def test_workers_that_are_the_program_may_become_ready_when_they_like() -> None:
    alone = ipujob().without_launcher().workers(2)
    job = alone.build()
    unready = worker(job, 1).running().with_status(conditions=[UNREADY])
    assert "decide" not in steps(plan(late_pods(alone, worker(job).running(), unready), at(90_000)))
    stuck = worker(job, 1).waiting("ContainerCreating")
    assert "decide" in steps(plan(late_pods(alone, worker(job).running(), stuck), at(1800)))


def late_pods(job: Any, *pods: PodBuilder) -> Observed:
    for pod in pods:
        pod.manifest["metadata"] |= MADE
    return with_partition(job.with_status(launcherStatus="Pending"), *pods)


def test_a_job_that_waits_for_ipus_gives_nothing_back() -> None:
    waits = (partition(phase="waiting", id="", reason="NoCapacity", message="full"),)
    seen = observed(ipujob().build(), partitions=waits, fault=FULL)
    (entry,) = status_of(plan(seen, NOW))["instances"]
    assert "blockedSince" not in entry


def test_an_invalid_job_without_pods_holds_no_ipus() -> None:
    broken = ipujob().with_spec(ipusPerModelReplica=3).build()
    planned = plan(observed(broken, partitions=(partition(),)), NOW)
    assert [a for a in planned.actions if isinstance(a, ReleasePartition)] == [ReleasePartition(0)]


def test_a_thousand_instances_have_a_status_at_once_and_ask_a_few_at_a_time() -> None:
    job = ipujob().without_launcher().instances(1000).workers(1)
    planned = plan(observed(job.build()), NOW)
    assert steps(planned)[:3] == ["try", "status", "partitions"]
    assert condition_of(planned)[0] == "Pending"
    assert [one.instance for one in requests_in(planned)] == list(range(64))
    job.with_status(**status_of(planned))
    more = tuple(partition(n, asked_at=NOW) for n in range(64))
    assert requests_in(plan(observed(job.build(), partitions=more), NOW))[0].instance == 64


def test_where_one_waits_for_ipus_the_others_do_not_ask() -> None:
    job = ipujob().without_launcher().instances(1000).workers(1).build()
    full = partition(1, phase="waiting", id="", reason="NoCapacity", message="8 needed")
    refused = (partition(0), replace(full, asked_at=NOW))
    assert requests_in(plan(observed(job, partitions=refused), NOW)) == []
    woken = (partition(0), full, replace(full, instance=2))
    assert [one.instance for one in requests_in(plan(observed(job, partitions=woken), NOW))] == [1]
    served = (partition(0), partition(1, phase="creating", asked_at=NOW))
    assert len(requests_in(plan(observed(job, partitions=served), NOW))) == 64
