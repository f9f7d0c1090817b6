"""Pods as objects: defaults, what may change, status, binding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.kinds import pod, pods

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl


def lonely(name: str = "a", **spec: Any) -> Json:
    """A pod that no scheduler takes."""
    return pod(name, schedulerName="nobody", **spec)


async def test_a_pod_gets_its_defaults(api: Api, pod_namespace: str) -> None:
    made = (await api.create(pods(pod_namespace), lonely())).ok(201)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["securityContext"] == {}
    assert spec["enableServiceLinks"] is True
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["resources"] == {}
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_an_image_tagged_latest_is_always_pulled(api: Api, pod_namespace: str) -> None:
    body = lonely()
    body["spec"]["containers"][0]["image"] = "example.com/main"
    made = (await api.create(pods(pod_namespace), body)).ok(201)
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"


QOS: dict[str, tuple[Json, str]] = {
    "guaranteed": (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "Guaranteed",
    ),
    "limits-only": ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    "burstable": ({"requests": {"cpu": "1"}}, "Burstable"),
    "none": ({}, "BestEffort"),
}


@pytest.mark.parametrize("row", QOS)
async def test_the_quality_of_service_follows_from_resources(
    api: Api, pod_namespace: str, row: str
) -> None:
    resources, want = QOS[row]
    body = lonely()
    body["spec"]["containers"][0]["resources"] = resources
    made = (await api.create(pods(pod_namespace), body)).ok(201)
    assert made["status"]["qosClass"] == want
    stored = made["spec"]["containers"][0]["resources"]
    if "limits" in resources:
        assert stored["requests"] == resources["limits"]


BAD_PODS: dict[str, tuple[Json, str, str]] = {
    "no-containers": ({"containers": []}, "spec.containers", "Required value"),
    "no-image": ({"containers": [{"name": "a"}]}, "spec.containers[0].image", "Required value"),
    "no-name": ({"containers": [{"image": "a"}]}, "spec.containers[0].name", "Required value"),
    "upper-name": (
        {"containers": [{"name": "A", "image": "a"}]},
        "spec.containers[0].name",
        "Invalid value",
    ),
    "same-name": (
        {"containers": [{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]},
        "spec.containers[1].name",
        "Duplicate value",
    ),
    "restart-policy": (
        {"restartPolicy": "Sometimes"},
        "spec.restartPolicy",
        'Unsupported value: "Sometimes"',
    ),
    "lost-mount": (
        {
            "containers": [
                {
                    "name": "a",
                    "image": "a",
                    "volumeMounts": [{"name": "lost", "mountPath": "/x"}],
                }
            ]
        },
        "spec.containers[0].volumeMounts[0].name",
        'Not found: "lost"',
    ),
    "deadline": ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "Invalid value"),
}


@pytest.mark.parametrize("row", BAD_PODS)
async def test_a_bad_pod_is_422(api: Api, pod_namespace: str, row: str) -> None:
    spec, field, message = BAD_PODS[row]
    status = (await api.create(pods(pod_namespace), lonely(**spec))).refused(422, "Invalid")
    assert status["details"]["kind"] == "Pod"
    found = {cause["field"]: cause["message"] for cause in status["details"]["causes"]}
    assert message in found[field]


async def test_a_pod_name_is_a_subdomain(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), lonely("a.b-" + "x" * 60))).ok(201)
    (await api.create(pods(pod_namespace), lonely("A"))).refused(422, "Invalid")


@pytest.mark.parametrize(
    "change",
    [
        {"nodeName": "other"},
        {"hostNetwork": True},
        {"restartPolicy": "Never"},
        {"containers": [{"name": "main", "command": ["other"]}]},
        {"volumes": [{"name": "a", "emptyDir": {}}]},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_most_of_a_pods_spec_cannot_change(
    api: Api, pod_namespace: str, change: Json
) -> None:
    (await api.create(pods(pod_namespace), lonely())).ok(201)
    answer = await api.patch(pods(pod_namespace, "a"), {"spec": change}, "strategic")
    status = answer.refused(422, "Invalid")
    cause = status["details"]["causes"][0]
    assert cause["field"] == "spec"
    assert cause["reason"] == "FieldValueForbidden"
    assert "pod updates may not change fields other than" in cause["message"]


async def test_images_tolerations_and_a_first_deadline_can_change(
    api: Api, pod_namespace: str
) -> None:
    path = pods(pod_namespace, "a")
    (await api.create(pods(pod_namespace), lonely())).ok(201)
    image = {"spec": {"containers": [{"name": "main", "image": "example.com/main:2"}]}}
    made = (await api.patch(path, image, "strategic")).ok(200)
    assert made["spec"]["containers"][0]["image"] == "example.com/main:2"
    made = (await api.patch(path, {"spec": {"activeDeadlineSeconds": 60}})).ok(200)
    assert made["spec"]["activeDeadlineSeconds"] == 60
    (await api.patch(path, {"spec": {"activeDeadlineSeconds": 30}})).ok(200)
    longer = await api.patch(path, {"spec": {"activeDeadlineSeconds": 90}})
    status = longer.refused(422, "Invalid")
    assert "spec.activeDeadlineSeconds" in status["message"]


async def test_the_main_path_does_not_write_the_status(api: Api, pod_namespace: str) -> None:
    path = pods(pod_namespace, "a")
    body = {**lonely(), "status": {"phase": "Running"}}
    assert (await api.create(pods(pod_namespace), body)).ok(201)["status"]["phase"] == "Pending"
    (await api.patch(path, {"status": {"phase": "Failed"}})).ok(200)
    assert (await api.get(path)).ok(200)["status"]["phase"] == "Pending"


async def test_the_status_path_writes_only_the_status(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), lonely())).ok(201)
    change = {
        "spec": {"activeDeadlineSeconds": 5},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }
    made = (await api.patch(pods(pod_namespace, "a", "status"), change)).ok(200)
    assert made["status"]["phase"] == "Running"
    assert made["status"]["podIP"] == "10.0.0.1"
    assert "activeDeadlineSeconds" not in made["spec"]


async def test_labels_and_annotations_of_a_pod_can_change(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), lonely())).ok(201)
    change = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
    made = (await api.patch(pods(pod_namespace, "a"), change)).ok(200)["metadata"]
    assert made["labels"] == {"a": "b"}
    assert made["annotations"] == {"c": "d"}


def binding(name: str, node: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def test_a_binding_puts_a_pod_on_a_node_once(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), lonely())).ok(201)
    path = pods(pod_namespace, "a", "binding")
    answer = (await api.create(path, binding("a", "nowhere"))).ok(201)
    assert answer["status"] == "Success"
    bound = (await api.get(pods(pod_namespace, "a"))).ok(200)
    assert bound["spec"]["nodeName"] == "nowhere"
    conditions = {entry["type"]: entry for entry in bound["status"]["conditions"]}
    assert conditions["PodScheduled"]["status"] == "True"
    again = await api.create(path, binding("a", "elsewhere"))
    status = again.refused(409, "Conflict")
    assert 'pod a is already assigned to node "nowhere"' in status["message"]


async def test_a_binding_of_a_missing_pod_is_404(api: Api, pod_namespace: str) -> None:
    answer = await api.create(pods(pod_namespace, "none", "binding"), binding("none", "x"))
    answer.refused(404, "NotFound")


async def test_a_pod_counts_no_generation_before_it_must(api: Api, pod_namespace: str) -> None:
    """Releases from 1.34 on count a generation for pods too; no release does for a label."""
    made = (await api.create(pods(pod_namespace), lonely())).ok(201)
    change = {"metadata": {"labels": {"a": "b"}}}
    changed = (await api.patch(pods(pod_namespace, "a"), change)).ok(200)
    assert changed["metadata"].get("generation") == made["metadata"].get("generation")


def test_kubectl_runs_and_describes_a_pod(kubectl: Kubectl, pod_namespace: str) -> None:
    body = lonely("a", nodeName="nowhere", labels={"x": "y"})
    assert kubectl.run("create", "-n", pod_namespace, "-f", "-", stdin=body) == "pod/a created\n"
    output = kubectl.run("describe", "pod", "a", "-n", pod_namespace)
    lines = [line.split() for line in output.splitlines()]
    for want in (
        ["Name:", "a"],
        ["Namespace:", pod_namespace],
        ["Labels:", "x=y"],
        ["Status:", "Pending"],
        ["Image:", "example.com/main:1"],
    ):
        assert want in lines
    assert ["QoS", "Class:", "BestEffort"] in lines


async def test_a_status_patch_may_label_a_pod_but_not_change_what_it_runs(
    api: Api, pod_namespace: str
) -> None:
    (await api.call("POST", pods(pod_namespace), pod("a"))).ok(201)
    change = {
        "metadata": {"labels": {"ipuhub.io/leader": "true"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/other:1"}]},
    }
    path = pods(pod_namespace, "a", "status")
    merge = "application/merge-patch+json"
    (await api.call("PATCH", path, change, content_type=merge)).ok(200)
    found = (await api.get(pods(pod_namespace, "a"))).ok(200)
    assert found["metadata"]["labels"] == {"ipuhub.io/leader": "true"}
    assert found["spec"]["containers"][0]["image"] == "example.com/main:1"
    gone = {"metadata": {"labels": {"ipuhub.io/leader": None}}}
    done = (await api.call("PATCH", path, gone, content_type=merge)).ok(200)
    assert "labels" not in done["metadata"]
