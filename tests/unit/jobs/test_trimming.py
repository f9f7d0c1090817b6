"""The operator's trimmed objects keep every field that it reads."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from jobs.operator.ownership import contents_of, trim_child, trim_job, trim_pod
from jobs.operator.pods import from_manifest
from tests.builders.ipujobs import ipujob, worker

if TYPE_CHECKING:
    from tests.builders.ipujobs import PodBuilder

JOB = ipujob().build()


def full(pod: PodBuilder) -> dict[str, Any]:
    """The pod with much that no code reads."""
    built = pod.build()
    built["metadata"] |= {"generateName": "x", "annotations": {"ipuhub.io/usage": "{}"}}
    built["metadata"]["labels"]["app"] = "mine"
    built["spec"]["tolerations"] = [{"key": "a"}]
    built["status"].setdefault("conditions", []).append({"type": "Initialized", "status": "True"})
    return built


@pytest.mark.parametrize(
    "pod",
    [
        worker(JOB),
        worker(JOB).scheduled(),
        worker(JOB).running(),
        worker(JOB).unheard(),
        worker(JOB)
        .running()
        .with_status(
            conditions=[
                {"type": "Ready", "status": "False"},
                {"type": "ContainersReady", "status": "False"},
            ]
        ),
        worker(JOB).exited(),
        worker(JOB).failed(137, "OOMKilled", "a log"),
        worker(JOB).failed(1, "Error", "a log").with_sidecar(143),
        worker(JOB).ended_by_operator(),
        worker(JOB).waiting("ErrImagePull", "no such image"),
        worker(JOB).unschedulable(),
        worker(JOB).running().deleting(),
        worker(JOB)
        .running()
        .with_status(
            conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]
        ),
        worker(JOB)
        .failed(137, "OOMKilled")
        .with_spec(
            containers=[{"name": "main", "image": "a", "resources": {"limits": {"memory": "1Gi"}}}]
        ),
    ],
)
def test_a_trimmed_pod_is_seen_as_the_whole_one_is(pod: PodBuilder) -> None:
    whole = full(pod)
    trimmed = trim_pod(copy.deepcopy(whole))
    assert from_manifest(trimmed) == from_manifest(whole)
    assert trim_pod(trimmed) == trimmed
    assert "app" not in trimmed["metadata"]["labels"]
    assert "tolerations" not in trimmed["spec"]


def test_of_a_child_it_is_kept_who_owns_it_and_what_is_in_it_in_short() -> None:
    meta = {"name": "a", "namespace": "b", "uid": "c", "labels": {"graphcore.ai/ipujob-uid": "u"}}
    meta |= {"creationTimestamp": "2026-03-01T12:00:00Z"}
    owners = [{"uid": "v"}, {"uid": "u", "controller": True}]
    data = {"data": {"x": "y"}}
    owned = {"metadata": meta | {"ownerReferences": owners}} | data
    assert trim_child(owned) == {
        "metadata": meta | {"controller": "u"},
        "contents": contents_of(data),
    }
    assert trim_child(trim_child(owned)) == trim_child(owned)
    meant_well = {"metadata": meta | {"ownerReferences": owners[:1]}}
    assert trim_child(meant_well) == {"metadata": meta, "contents": ""}
    assert trim_child({"metadata": meta, "data": {}}) == {"metadata": meta, "contents": ""}


def test_a_job_loses_what_kubectl_keeps_there_for_itself_only() -> None:
    job = ipujob().annotated(mine="1").build()
    mine = copy.deepcopy(job)
    job["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    assert trim_job(job) == mine
    assert trim_job(mine) == mine
