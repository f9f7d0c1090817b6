"""The remaining steps of a job's deletion, and its messages while it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.operator.actions import DeleteChild, ReleasePartition, SetFinalizers
from jobs.operator.observed import Fault
from jobs.operator.plan import plan
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
from tests.builders.plans import status_of, steps

if TYPE_CHECKING:
    from jobs.operator.observed import Observed
    from tests.builders.ipujobs import IPUJobBuilder

RELEASED = partition(phase="released")
RELEASING = partition(phase="releasing", asked_at=at(20), message="vipu:8090 is away")
FAULT = Fault("WebhookUnavailable", "the webhook does not answer")


def deleted(*pods: Any, job: IPUJobBuilder | None = None, **seen: Any) -> Observed:
    """A running job that was deleted at noon."""
    return observed((job or ipujob().running()).deleted().build(), *pods, **seen)


def released(seen: Observed) -> list[int]:
    return [a.instance for a in plan(seen, NOW).actions if isinstance(a, ReleasePartition)]


def test_every_wanted_instance_is_released_although_nothing_is_known_of_it() -> None:
    assert released(deleted(job=ipujob().without_launcher().instances(3))) == [0, 1, 2]


def test_what_an_invalid_spec_wants_is_no_instance_to_release() -> None:
    assert released(
        deleted(job=ipujob().without_launcher().instances(3).with_spec(ipusPerJobInstance="3"))
    ) == [0]


def test_where_nothing_is_known_a_job_without_our_finalizer_releases_nothing() -> None:
    assert plan(deleted(job=ipujob().without_finalizer()), NOW).actions == ()


def test_a_job_that_is_gone_and_of_which_only_pods_are_left_releases_nothing() -> None:
    built = ipujob().build()
    left = observed(None, worker(built).exited(), key=key_of(built))
    assert [type(action) for action in plan(left, NOW).actions] == [DeleteChild]


def test_the_finalizer_stays_until_the_last_instance_is_released() -> None:
    job = ipujob().without_launcher().instances(2)
    second = partition(1, phase="releasing", asked_at=NOW)
    assert plan(deleted(job=job, partitions=(RELEASED, second)), NOW).actions == ()
    both = (RELEASED, partition(1, phase="released"))
    assert plan(deleted(job=job, partitions=both), NOW).actions == (SetFinalizers(()),)


def test_the_finalizer_stays_until_what_has_no_owner_is_deleted() -> None:
    job = ipujob().running()
    left = children(job.build(), has_owner=False)
    seen = deleted(job=job, partitions=(RELEASED,), children=left)
    assert steps(plan(seen, NOW)) == ["orphans"]


def test_a_finalizer_that_nothing_holds_up_goes_without_a_word() -> None:
    planned = plan(deleted(partitions=(RELEASED,)), at(60))
    assert (steps(planned), planned.requeue_after) == (["finalizer"], None)


def test_nothing_is_said_in_the_first_ten_seconds() -> None:
    seen = deleted(worker(ipujob().build()).running().deleting())
    assert (plan(seen, at(4)).actions, plan(seen, at(4)).requeue_after) == ((), 6)
    assert steps(plan(seen, at(10))) == ["status"]


def test_what_is_said_already_is_not_said_again() -> None:
    seen = deleted(worker(ipujob().build()).running().deleting())
    status = status_of(plan(seen, at(11)))
    job = ipujob().running().with_status(**status)
    again = deleted(worker(ipujob().build()).running().deleting(), job=job)
    assert plan(again, at(60)).actions == ()


def test_another_sentence_waits_for_a_moment() -> None:
    job = ipujob().running().with_status(lastReconcileTime="2026-03-01T12:00:30Z")
    seen = deleted(worker(ipujob().build()).running().deleting(), job=job)
    planned = plan(seen, at(30.5))
    assert (planned.actions, planned.requeue_after) == ((), 1.5)
    assert steps(plan(seen, at(32))) == ["status"]


def test_a_job_without_a_status_gets_none_when_it_is_deleted() -> None:
    slow = worker(ipujob().build()).running().deleting()
    assert plan(deleted(slow, job=ipujob()), at(60)).actions == ()


def pods(count: int) -> list[Any]:
    built = ipujob().build()
    found = [launcher(built), worker(built, 0).running(), worker(built, 1)]
    return [pod.deleting() for pod in found[-count:]]


@pytest.mark.parametrize(
    ("left", "seen", "want"),
    [
        (1, {}, "Being deleted: waiting for pod sample-worker-1 to terminate"),
        (
            2,
            {"fault": FAULT},
            (
                "Being deleted: waiting for pod sample-worker-0 on node-0 and 1 more to terminate. "
                "the webhook does not answer"
            ),
        ),
        (3, {}, "Being deleted: waiting for pod sample-launcher and 2 more to terminate"),
        (
            0,
            {"partitions": (RELEASED,), "fault": FAULT},
            "Being deleted. the webhook does not answer",
        ),
        (
            0,
            {"partitions": (RELEASED, partition(1, phase="releasing")), "fault": FAULT},
            "Being deleted: waiting for the partition to be released. the webhook does not answer",
        ),
        (
            0,
            {"partitions": (RELEASING,), "proxy_problem": "connection refused"},
            "Being deleted: waiting for the partition to be released. connection refused",
        ),
        (
            0,
            {"partitions": (RELEASING,)},
            "Being deleted: waiting for the partition to be released. vipu:8090 is away",
        ),
        (
            0,
            {"partitions": (partition(message="it is fine"),)},
            "Being deleted: waiting for the partition to be released.",
        ),
    ],
)
def test_a_deletion_says_what_it_waits_for(left: int, seen: dict[str, Any], want: str) -> None:
    found = pods(left) if left else []
    assert status_of(plan(deleted(*found, **seen), at(21)))["lastMessage"] == want


def test_a_fault_is_told_as_a_warning_before_the_finalizer_goes() -> None:
    planned = plan(deleted(partitions=(RELEASED,), fault=FAULT), at(21))
    assert steps(planned) == ["status", "finalizer"]
    (event,) = planned.actions[0].events  # type: ignore[union-attr]
    assert (event.reason, event.message, event.is_warning) == (
        "WebhookUnavailable",
        "Being deleted. the webhook does not answer",
        True,
    )
