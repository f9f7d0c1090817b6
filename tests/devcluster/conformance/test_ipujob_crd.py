"""The IPUJob CRD of the chart on the API server, with the published shapes of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

CRD_FILE = Path(__file__).parents[3] / "charts/ipuhub/files/graphcore.ai_ipujobs.yaml"
TEMPLATE: Json = {
    "spec": {
        "containers": [
            {
                "name": "mnist",
                "image": "example.com/mnist:1",
                "resources": {"limits": {"cpu": 1, "memory": "2Gi"}},
            }
        ]
    }
}


@pytest.fixture(scope="session")
def ipujobs(kubectl: Kubectl) -> None:
    """The CRD of the chart, applied."""
    kubectl.run("apply", "-f", str(CRD_FILE))
    kubectl.wait_established("ipujobs.graphcore.ai")


def path_of(namespace: str, name: str = "", subresource: str = "") -> str:
    parts = [f"/apis/graphcore.ai/v1alpha1/namespaces/{namespace}/ipujobs", name, subresource]
    return "/".join(part for part in parts if part)


def job(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def alpha(name: str = "a", **more: Any) -> Json:
    """The shape of the alpha: the size is replicas times IPUs per replica."""
    spec = {
        "modelReplicas": "4",
        "ipusPerModelReplica": "1",
        "launcher": {"command": ["mpirun", "python3", "train.py"]},
        "workers": {"replicas": 1, "template": TEMPLATE},
    }
    return job(name, **{**spec, **more})


def published(name: str = "a", **more: Any) -> Json:
    """The shape of the 1.x releases: instances of some IPUs each."""
    spec = {
        "jobInstances": 1,
        "ipusPerJobInstance": "4",
        "workersPerJobInstance": "1",
        "modelReplicasPerWorker": "4",
        "workers": {"template": TEMPLATE},
    }
    return job(name, **{**spec, **more})


SHAPES: dict[str, Json] = {
    "alpha": alpha(),
    "alpha-interactive": alpha(interactive={"ttl": 3600}),
    "alpha-policies": alpha(
        cleanPodPolicy="Workers", restartPolicy={"type": "OnFailure", "backOffLimit": 5}
    ),
    "published": published(),
    "published-launcher": published(
        launcher={"command": ["poprun"], "env": [{"name": "A", "value": "b"}]}
    ),
    "published-exit-codes": published(
        restartPolicy={"type": "ExitCode", "exitCodes": "1,5,10-127"}
    ),
    "published-strategy": published(
        workers={
            "replicas": 2,
            "template": TEMPLATE,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        }
    ),
    "numbers-as-integers": published(ipusPerJobInstance=4, workersPerJobInstance=1),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_published_shape_is_stored_as_it_is(
    api: Api, namespace: str, ipujobs: None, shape: str
) -> None:
    body = SHAPES[shape]
    made = (await api.create(path_of(namespace), body)).ok(201)
    assert _within(body["spec"], made["spec"])
    assert made["metadata"]["generation"] == 1


async def test_a_new_job_shows_as_pending_before_anybody_writes_to_it(
    api: Api, kubectl: Kubectl, namespace: str, ipujobs: None
) -> None:
    made = (await api.create(path_of(namespace), published("new"))).ok(201)
    read = (await api.get(path_of(namespace, "new"))).ok()
    for found in (made, read):
        assert found["status"] == {"launcherStatus": "Pending"}
    row = kubectl.run("get", "ipujobs", "-n", namespace, "--no-headers")
    assert row.split()[:2] == ["new", "Pending"]


def _within(part: Any, whole: Any) -> bool:
    """Return whether all of `part` is in `whole`, which may have defaults besides."""
    if isinstance(part, dict):
        return all(key in whole and _within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        pairs = zip(part, whole, strict=False)
        return len(part) == len(whole) and all(_within(*pair) for pair in pairs)
    return bool(part == whole)


REFUSED: dict[str, tuple[Json, str]] = {
    "clean-pod-policy": (
        alpha(cleanPodPolicy="Some"),
        'spec.cleanPodPolicy: Unsupported value: "Some"',
    ),
    "restart-type": (
        alpha(restartPolicy={"type": "Sometimes"}),
        'spec.restartPolicy.type: Unsupported value: "Sometimes"',
    ),
    "instances-as-text": (
        published(jobInstances="1"),
        "spec.jobInstances in body must be of type integer",
    ),
    "command-as-text": (
        alpha(launcher={"command": "mpirun"}),
        "spec.launcher.command in body must be of type array",
    ),
}


@pytest.mark.parametrize("row", REFUSED)
async def test_what_the_published_schema_refuses_is_422(
    api: Api, namespace: str, ipujobs: None, row: str
) -> None:
    body, message = REFUSED[row]
    status = (await api.create(path_of(namespace), body)).refused(422, "Invalid")
    assert message in status["message"]


async def test_the_template_keeps_fields_of_other_releases(
    api: Api, namespace: str, ipujobs: None
) -> None:
    template = {"spec": {**TEMPLATE["spec"], "fieldOfTomorrow": {"a": 1}}}
    body = alpha(workers={"replicas": 1, "template": template})
    made = (await api.create(path_of(namespace), body)).ok(201)
    assert made["spec"]["workers"]["template"]["spec"]["fieldOfTomorrow"] == {"a": 1}


async def test_an_unknown_field_outside_the_template_is_pruned(
    api: Api, namespace: str, ipujobs: None
) -> None:
    made = (await api.create(path_of(namespace), alpha(modelReplica="4"))).ok(201)
    assert "modelReplica" not in made["spec"]


async def test_the_status_of_a_job_is_its_own_path(api: Api, namespace: str, ipujobs: None) -> None:
    (await api.create(path_of(namespace), published())).ok(201)
    status = {
        "launcherStatus": "Running",
        "currentReplicas": 1,
        "desiredReplicas": 1,
        "lastMessage": "All instances are running",
        "iPUPartitionCreated": True,
        "restartCount": 0,
        "workersStatus": {"active": 1},
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Running", "status": "True", "reason": "IPUJobRunning"}],
    }
    made = (await api.patch(path_of(namespace, "a", "status"), {"status": status})).ok(200)
    assert _within(status, made["status"])
    assert made["metadata"]["generation"] == 1


async def test_the_finalizer_of_an_old_job_can_be_removed(
    api: Api, namespace: str, ipujobs: None
) -> None:
    body = alpha()
    body["metadata"]["finalizers"] = ["ipu.finalizers.graphcore.ai"]
    (await api.create(path_of(namespace), body)).ok(201)
    (await api.delete(path_of(namespace, "a"))).ok(200)
    (await api.patch(path_of(namespace, "a"), {"metadata": {"finalizers": None}})).ok(200)
    (await api.get(path_of(namespace, "a"))).refused(404, "NotFound")


def test_kubectl_gets_scales_and_explains_jobs(
    kubectl: Kubectl, namespace: str, ipujobs: None
) -> None:
    output = kubectl.run("apply", "-n", namespace, "-f", "-", stdin=published())
    assert output == "ipujob.graphcore.ai/a created\n"
    header = kubectl.run("get", "ipujobs", "-n", namespace).splitlines()[0].split()
    assert header == ["NAME", "STATUS", "CURRENT", "DESIRED", "LASTMESSAGE", "AGE"]
    kubectl.run("scale", "-n", namespace, "ipujob", "a", "--replicas=3")
    assert kubectl.json("get", "-n", namespace, "ipujob", "a")["spec"]["jobInstances"] == 3


async def test_kubectl_explains_a_job(kubectl: Kubectl, ipujobs: None) -> None:
    from tests.devcluster.conformance.api import eventually

    async def explained() -> Any:
        done = kubectl.call("explain", "ipujob.spec")
        return done.stdout if done.returncode == 0 else None

    output = await eventually(explained)
    for field in ("jobInstances", "modelReplicas", "workers", "restartPolicy"):
        assert field in output


@pytest.mark.needs_release("1.25")
def test_kubectl_apply_refuses_a_misspelt_field_of_a_job(
    kubectl: Kubectl, namespace: str, ipujobs: None
) -> None:
    output = kubectl.fails("apply", "-n", namespace, "-f", "-", stdin=alpha(modelReplica="4"))
    assert 'unknown field "spec.modelReplica"' in output
