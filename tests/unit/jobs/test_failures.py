"""The effect of an API server's errors on a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.errors import Conflict, Forbidden, ServerError, Unreachable, from_answer
from jobs.ipujob.conditions import SENTENCES, Reason
from jobs.ipujob.names import Kind
from jobs.operator.actions import CreateChild, DeleteChild, SetFinalizers
from jobs.operator.failures import fault_of
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import condition_of, created, status_of, steps, with_partition

if TYPE_CHECKING:
    from ipuhub.kube.errors import ApiError

POD = CreateChild(Kind.POD, {"metadata": {"name": "sample-worker-0"}})
FORBIDDEN = 'pods "sample-worker-0" is forbidden: '


def answer(status: int, message: str, **details: Any) -> ApiError:
    body = {"reason": "Forbidden", "message": message, "details": details}
    return from_answer(status, body)


@pytest.mark.parametrize(
    ("status", "message", "want"),
    [
        (
            403,
            FORBIDDEN + "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
            Reason.QUOTA_EXCEEDED,
        ),
        (403, FORBIDDEN + "failed quota: q: must specify limits.cpu", Reason.QUOTA_EXCEEDED),
        (
            403,
            FORBIDDEN + "maximum memory usage per Container is 1Gi, but limit is 2Gi",
            Reason.LIMIT_RANGE,
        ),
        (
            403,
            FORBIDDEN + "minimum cpu usage per Pod is 1, but request is 100m",
            Reason.LIMIT_RANGE,
        ),
        (
            403,
            FORBIDDEN + "cpu max limit to request ratio per Container is 2, but provided is 4",
            Reason.LIMIT_RANGE,
        ),
        (
            403,
            FORBIDDEN + 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork)',
            Reason.POD_SECURITY,
        ),
        (400, 'admission webhook "p.example" denied the request: no', Reason.ADMISSION_DENIED),
        (
            500,
            'Internal error occurred: failed calling webhook "w.ipuhub.io": connection refused',
            Reason.WEBHOOK_UNAVAILABLE,
        ),
        (500, "etcdserver: request timed out", Reason.API_UNAVAILABLE),
        (503, "the server is currently unable to handle the request", Reason.API_UNAVAILABLE),
        (429, "too many requests", Reason.API_UNAVAILABLE),
        (403, FORBIDDEN + 'User "x" cannot create resource "pods"', Reason.CREATE_FAILED),
        (422, "Pod is invalid: spec.containers[0].name: Invalid value", Reason.CREATE_FAILED),
        (
            403,
            "unable to create new content in namespace a because it is being terminated",
            Reason.NAMESPACE_TERMINATING,
        ),
    ],
)
def test_each_refusal_has_its_reason_and_keeps_the_servers_words(
    status: int, message: str, want: Reason
) -> None:
    fault = fault_of(POD, answer(status, message))
    assert fault is not None
    assert fault.reason == want
    assert fault.message.startswith("Cannot create Pod sample-worker-0: ")
    assert message in fault.message
    assert fault.is_passing is (status == 429 or status >= 500)


def test_a_terminating_namespace_is_known_by_its_cause() -> None:
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
    fault = fault_of(POD, answer(403, "forbidden", causes=causes))
    assert fault is not None
    assert fault.reason == Reason.NAMESPACE_TERMINATING


def test_a_finalizer_that_a_dead_webhook_holds_up_is_told() -> None:
    fault = fault_of(SetFinalizers(()), ServerError(500, "InternalError", "failed calling webhook"))
    assert fault is not None
    assert (fault.reason, fault.is_passing) == (Reason.WEBHOOK_UNAVAILABLE, True)
    assert fault.message.startswith("Cannot write the job's finalizers: failed calling webhook")


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (POD, Unreachable("connection refused")),
        (SetFinalizers(()), Conflict(409, "Conflict", "modified")),
        (DeleteChild(Kind.POD, "default", "x", "u"), Conflict(409, "Conflict", "modified")),
    ],
)
def test_what_nobody_can_act_on_is_not_told(action: Any, error: ApiError) -> None:
    assert fault_of(action, error) is None


def test_a_quota_is_the_reason_of_a_waiting_job() -> None:
    fault = fault_of(POD, Forbidden(403, "Forbidden", FORBIDDEN + "exceeded quota: q"))
    planned = plan(with_partition(ipujob(), fault=fault), NOW)
    assert condition_of(planned)[:2] == ("Pending", "QuotaExceeded")
    assert "free some quota, or ask for a larger quota" in condition_of(planned)[2]
    assert created(planned) == ["Pod sample-worker-0", "Pod sample-launcher"]


def test_in_a_namespace_that_is_being_deleted_nothing_is_made_and_it_is_said() -> None:
    job = ipujob().without_finalizer()
    planned = plan(observed(job.build(), is_namespace_ending=True), NOW)
    assert steps(planned) == ["status"]
    assert condition_of(planned)[:2] == ("Pending", "NamespaceTerminating")
    ready = plan(with_partition(job, is_namespace_ending=True), NOW)
    assert created(ready) == []


def test_a_running_job_in_a_namespace_that_is_being_deleted_runs_on() -> None:
    job = ipujob().running()
    built = job.build()
    seen = with_partition(
        job, worker(built).running(), launcher(built).running(), is_namespace_ending=True
    )
    assert "launcherStatus" not in status_of(plan(seen, NOW))


def test_a_deletion_that_is_refused_says_why_before_it_tries_again() -> None:
    fault = fault_of(SetFinalizers(()), ServerError(500, "InternalError", "failed calling webhook"))
    job = ipujob().deleted().with_status(launcherStatus="Running")
    seen = observed(job.build(), partitions=(partition(phase="released"),), fault=fault)
    assert steps(plan(seen, at(1))) == ["finalizer"]
    late = plan(seen, at(11))
    assert steps(late) == ["status", "finalizer"]
    assert "failed calling webhook" in status_of(late)["lastMessage"]
    (event,) = late.steps[0].actions[0].events  # type: ignore[union-attr]
    assert (event.reason, event.is_warning) == ("WebhookUnavailable", True)


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason)
