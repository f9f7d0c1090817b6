"""A node that stops reporting: the job says so immediately, and again on its return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.operator.actions import PatchStatus
from jobs.operator.plan import plan
from jobs.operator.pods import from_manifest, on_node, trouble_of_node
from tests.builders.ipujobs import NOW, ipujob, launcher, worker
from tests.builders.plans import condition_of, status_of, steps, with_partition


def test_a_running_job_goes_on_and_says_which_node_and_pods() -> None:
    job = ipujob().running()
    built = job.build()
    seen = with_partition(job, worker(built).unheard(), launcher(built).running())
    planned = plan(seen, NOW)
    assert condition_of(planned)[:2] == ("Running", "NodeNotReady")
    assert condition_of(planned)[2].startswith(
        "Node node-0 stopped reporting, with sample-worker-0. "
    )
    (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
    events = [(event.reason, event.is_warning) for event in patch.events]
    assert ("NodeNotReady", True) in events
    assert steps(planned) == ["status"]


def test_the_condition_ends_with_the_silence() -> None:
    job = ipujob().running()
    built = job.build()
    silent = with_partition(job, worker(built).unheard(), launcher(built).running())
    job.with_status(**{**silent.status(), **status_of(plan(silent, NOW))})
    built = job.build()
    back = with_partition(job, worker(built).running(), launcher(built).running())
    assert condition_of(plan(back, NOW))[1] == "IPUJobRunning"


def test_a_job_that_waits_for_its_workers_says_it_too() -> None:
    job = ipujob()
    built = job.build()
    assert condition_of(plan(with_partition(job, worker(built).unheard(), launcher(built)), NOW))[
        :2
    ] == (
        "Pending",
        "NodeNotReady",
    )


def test_many_pods_are_counted() -> None:
    job = ipujob().workers(5).running()
    built = job.build()
    pods = [worker(built, number).unheard() for number in range(5)]
    message = condition_of(plan(with_partition(job, *pods, launcher(built).unheard()), NOW))[2]
    assert "sample-launcher, sample-worker-0, sample-worker-1 and 3 more. " in message


def node(status: str, reason: str = "") -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": reason}
    return {"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, ready]}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (node("True", "KubeletReady"), ""),
        (node("False", "KubeletNotReady"), "went NotReady (KubeletNotReady)"),
        (node("Unknown", "NodeStatusUnknown"), "stopped reporting"),
        ({"status": {}}, ""),
        ({}, ""),
    ],
)
def test_what_became_of_a_node(found: dict[str, Any], want: str) -> None:
    assert trouble_of_node(found) == want


def test_a_node_that_says_itself_that_it_is_not_ready_is_told_though_its_pods_are() -> None:
    job = ipujob().workers(2).running()
    built = job.build()
    first, second = (from_manifest(worker(built, n).running().build()) for n in range(2))
    seen = with_partition(job, worker(built).running(), launcher(built).running())
    pods = (
        on_node(replace(first, node="node-b"), "went NotReady (KubeletNotReady)"),
        on_node(replace(second, node="node-a"), "stopped reporting"),
        *(view for view in seen.pods if view.role == "launcher"),
    )
    state, reason, message = condition_of(plan(replace(seen, pods=pods), NOW))
    assert (state, reason) == ("Running", "NodeNotReady")
    assert message.startswith(
        "Node node-a stopped reporting and node node-b went NotReady (KubeletNotReady), with "
        "sample-worker-0, sample-worker-1. "
    )


def test_a_pod_that_has_ended_needs_no_node() -> None:
    ended = from_manifest(worker(ipujob().build()).exited(0).build())
    assert on_node(ended, "stopped reporting").node_trouble == ""


@pytest.mark.parametrize(
    "ready",
    [
        {"reason": "ContainersNotReady"},
        {"reason": "ReadinessGatesNotReady"},
        {"status": "True"},
    ],
)
def test_what_a_kubelet_says_is_no_silence(ready: dict[str, Any]) -> None:
    pod = worker(ipujob().build()).unheard().build()
    pod["status"]["conditions"][0] |= ready
    assert from_manifest(pod).node_trouble == ""
