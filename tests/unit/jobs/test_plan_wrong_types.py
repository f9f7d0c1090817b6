"""Values of wrong types in a spec, which a CRD without our schema lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.ipujob.validation import problems
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, ipujob, observed, partition
from tests.builders.mutations import paths_of, with_value
from tests.builders.plans import created

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest

CONTAINER = {
    "name": "main",
    "image": "a",
    "command": ["a"],
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 1}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "resources": {"limits": {"cpu": 1}},
    "securityContext": {"runAsUser": 1, "capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}},
}
POD = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "i", "image": "a", "env": []}],
    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": 1}}],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a"}],
    "imagePullSecrets": [{"name": "s"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
    "hostNetwork": True,
}


def full_job() -> Manifest:
    job = ipujob().workers(2).build()
    job["spec"]["workers"]["template"] = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": POD,
    }
    job["spec"]["launcher"]["env"] = [{"name": "A", "value": "b"}]
    return job


def test_the_job_with_right_types_gets_its_pods() -> None:
    pods = created(plan(observed(full_job(), partitions=(partition(),)), NOW))
    assert "Pod sample-worker-1" in pods
    assert "Pod sample-launcher" in pods


@pytest.mark.parametrize("value", [None, True, 1, "x", [], {}, [1], ["x"], [{"name": []}]], ids=str)
def test_no_value_of_a_wrong_type_breaks_a_plan(value: object) -> None:
    job = full_job()
    for path in paths_of(job["spec"], ("spec",)):
        changed = with_value(job, path, value)
        plan(observed(changed, partitions=(partition(),)), NOW)
        plan(observed(changed), NOW)


def test_a_wrong_type_is_named_with_the_right_one() -> None:
    container = ("spec", "workers", "template", "spec", "containers", 0)
    job = with_value(full_job(), (*container, "env"), "A=b")
    job = with_value(job, ("spec", "workers", "template", "metadata", "labels"), {"a": 1})
    job = with_value(job, (*container, "securityContext", "capabilities", "drop"), "ALL")
    job = with_value(job, ("spec", "launcher", "env", 0, "name"), 1)
    template, use = "spec.workers.template", "has a wrong type: use"
    assert [str(each) for each in problems("sample", job["spec"])] == [
        f"{template}.metadata.labels: {use} an object of strings",
        f"{template}.spec.containers[0].env: {use} a list of objects whose names are strings",
        f"{template}.spec.containers[0].securityContext.capabilities.drop: {use} a list of strings",
        f"spec.launcher.env: {use} a list of objects whose names are strings",
    ]
