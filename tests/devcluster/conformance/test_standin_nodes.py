"""Nodes, scheduling and the life of pods, simulated on both servers, by sim/ annotations."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually
from tests.devcluster.conformance.kinds import pod, pods

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

pytestmark = pytest.mark.full_cluster


def simulated(name: str = "a", *, sim: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod that ends by itself after a second, unless `sim` says otherwise."""
    settings = {"runtime-seconds": "1", **(sim or {})}
    annotations = {f"sim/{key}": value for key, value in settings.items()}
    return pod(name, annotations=annotations, **{"restartPolicy": "Never", **spec})


async def until_phase(api: Api, path: str, *phases: str) -> Json:
    async def reached() -> Any:
        got = (await api.get(path)).ok(200)
        return got if got["status"]["phase"] in phases else None

    return dict(await eventually(reached))


def conditions(made: Json) -> dict[str, Json]:
    return {entry["type"]: entry for entry in made["status"].get("conditions", [])}


async def test_a_pod_goes_from_pending_over_running_to_succeeded(
    api: Api, pod_namespace: str
) -> None:
    path = pods(pod_namespace)
    version = (await api.get(path)).ok(200)["metadata"]["resourceVersion"]
    (await api.create(path, simulated())).ok(201)
    async with api.watch(path, resourceVersion=version) as watch:
        events = await watch.until(lambda event: event["object"]["status"]["phase"] == "Succeeded")
    phases = [event["object"]["status"]["phase"] for event in events]
    assert list(dict.fromkeys(phases)) == ["Pending", "Running", "Succeeded"]
    ended = events[-1]["object"]
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == 0
    assert state["reason"] == "Completed"
    assert state["startedAt"] <= state["finishedAt"]
    assert ended["spec"]["nodeName"]
    assert ended["status"]["startTime"]
    ready = conditions(ended)["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")
    running = next(
        event["object"] for event in events if event["object"]["status"]["phase"] == "Running"
    )
    assert running["status"]["podIP"]
    assert "running" in running["status"]["containerStatuses"][0]["state"]


async def test_a_running_pod_is_ready_with_all_conditions(api: Api, pod_namespace: str) -> None:
    body = simulated(sim={"runtime-seconds": "600"}, terminationGracePeriodSeconds=1)
    (await api.create(pods(pod_namespace), body)).ok(201)

    async def is_ready() -> Any:
        got = (await api.get(pods(pod_namespace, "a"))).ok(200)
        ready = conditions(got).get("Ready", {}).get("status") == "True"
        return got if ready else None

    found = conditions(await eventually(is_ready))
    for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert found[kind]["status"] == "True"
        assert found[kind]["lastTransitionTime"]


async def test_a_failing_container_fails_the_pod(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), simulated(sim={"exit-code": "3"}))).ok(201)
    ended = await until_phase(api, pods(pod_namespace, "a"), "Failed", "Succeeded")
    assert ended["status"]["phase"] == "Failed"
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (3, "Error")


async def test_a_failing_container_is_started_again_on_failure(
    api: Api, pod_namespace: str
) -> None:
    body = simulated(sim={"exit-code": "1,0"}, restartPolicy="OnFailure")
    (await api.create(pods(pod_namespace), body)).ok(201)
    ended = await until_phase(api, pods(pod_namespace, "a"), "Succeeded", "Failed")
    assert ended["status"]["phase"] == "Succeeded"
    assert ended["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_init_containers_end_before_the_others_start(api: Api, pod_namespace: str) -> None:
    init = [{"name": "first", "image": "x"}, {"name": "second", "image": "x"}]
    body = simulated(sim={"init-seconds": "0.3"}, initContainers=init)
    (await api.create(pods(pod_namespace), body)).ok(201)
    ended = await until_phase(api, pods(pod_namespace, "a"), "Succeeded", "Failed")
    assert ended["status"]["phase"] == "Succeeded"
    states = [entry["state"]["terminated"] for entry in ended["status"]["initContainerStatuses"]]
    assert [state["exitCode"] for state in states] == [0, 0]
    main = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert states[0]["finishedAt"] <= states[1]["finishedAt"] <= main["startedAt"]


async def test_a_failing_init_container_fails_a_pod_that_never_restarts(
    api: Api, pod_namespace: str
) -> None:
    body = simulated(sim={"init-exit-code": "7"}, initContainers=[{"name": "i", "image": "x"}])
    (await api.create(pods(pod_namespace), body)).ok(201)
    ended = await until_phase(api, pods(pod_namespace, "a"), "Succeeded", "Failed")
    assert ended["status"]["phase"] == "Failed"
    state = ended["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == 7
    assert conditions(ended)["Initialized"]["status"] == "False"


async def test_a_pod_past_its_deadline_fails(api: Api, pod_namespace: str) -> None:
    body = simulated(sim={"runtime-seconds": "600"}, activeDeadlineSeconds=1)
    (await api.create(pods(pod_namespace), body)).ok(201)
    ended = await until_phase(api, pods(pod_namespace, "a"), "Succeeded", "Failed")
    assert (ended["status"]["phase"], ended["status"]["reason"]) == ("Failed", "DeadlineExceeded")


async def test_a_deleted_pod_goes_after_its_containers(api: Api, pod_namespace: str) -> None:
    sim = {"runtime-seconds": "600", "stop-seconds": "0.2"}
    (await api.create(pods(pod_namespace), simulated(sim=sim))).ok(201)
    running = await until_phase(api, pods(pod_namespace, "a"), "Running")
    version = running["metadata"]["resourceVersion"]
    marked = (await api.delete(pods(pod_namespace, "a"))).ok(200)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    begun = time.monotonic()
    async with api.watch(pods(pod_namespace), resourceVersion=version) as watch:
        events = await watch.until(lambda event: event["type"] == "DELETED")
    assert time.monotonic() - begun < 25, "the containers end long before the grace does"
    assert "deletionTimestamp" in events[0]["object"]["metadata"]


async def test_a_node_selector_chooses_the_node(api: Api, pod_namespace: str) -> None:
    nodes = (await api.get("/api/v1/nodes", labelSelector="kubernetes.io/hostname")).ok(200)
    ready = [
        node
        for node in nodes["items"]
        if any(
            entry["type"] == "Ready" and entry["status"] == "True"
            for entry in node["status"].get("conditions", [])
        )
    ]
    name = ready[-1]["metadata"]["name"]
    body = simulated(nodeSelector={"kubernetes.io/hostname": name})
    (await api.create(pods(pod_namespace), body)).ok(201)
    ended = await until_phase(api, pods(pod_namespace, "a"), "Succeeded", "Failed")
    assert ended["spec"]["nodeName"] == name


UNSCHEDULABLE: dict[str, tuple[Json, tuple[str, ...]]] = {
    "selector": (
        {"nodeSelector": {"nobody": "has-this"}},
        # In 1.20's words and in those of later releases.
        ("node(s) didn't match node selector", "node(s) didn't match Pod's node affinity"),
    ),
    "requests": (
        {
            "containers": [
                {"name": "main", "image": "x", "resources": {"requests": {"cpu": "9999"}}}
            ]
        },
        ("Insufficient cpu",),
    ),
}


@pytest.mark.parametrize("row", UNSCHEDULABLE)
async def test_a_pod_that_fits_nowhere_says_why(api: Api, pod_namespace: str, row: str) -> None:
    spec, messages = UNSCHEDULABLE[row]
    (await api.create(pods(pod_namespace), simulated(**spec))).ok(201)

    async def has_condition() -> Any:
        got = (await api.get(pods(pod_namespace, "a"))).ok(200)
        return conditions(got).get("PodScheduled")

    found = await eventually(has_condition)
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    assert found["message"].startswith("0/")
    assert "nodes are available" in found["message"]
    assert any(message in found["message"] for message in messages), found["message"]

    async def event() -> Any:
        path = f"/api/v1/namespaces/{pod_namespace}/events"
        selector = "reason=FailedScheduling,involvedObject.name=a"
        return (await api.get(path, fieldSelector=selector)).ok(200)["items"]

    assert (await eventually(event))[0]["type"] == "Warning"


async def test_the_scheduler_says_where_it_put_a_pod(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), simulated())).ok(201)

    async def event() -> Any:
        path = f"/api/v1/namespaces/{pod_namespace}/events"
        return (await api.get(path, fieldSelector="reason=Scheduled")).ok(200)["items"]

    message = (await eventually(event))[0]["message"]
    assert message.startswith(f"Successfully assigned {pod_namespace}/a to ")


def is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def test_each_node_renews_its_lease(api: Api) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

    async def held() -> Any:
        nodes = (await api.get("/api/v1/nodes")).ok(200)["items"]
        found = (await api.get(leases)).ok(200)["items"]
        names = {entry["metadata"]["name"] for entry in found if entry["spec"]["holderIdentity"]}
        wanted = {
            node["metadata"]["name"]
            for node in nodes
            if conditions(node).get("Ready", {}).get("status") == "True"  # not tests' own
        }
        return len(wanted) >= 4 and wanted <= names

    await eventually(held)


async def test_a_log_is_that_of_the_annotation(api: Api, pod_namespace: str) -> None:
    body = simulated(sim={"log": "one\ntwo\nthree", "runtime-seconds": "600"})
    (await api.create(pods(pod_namespace), body)).ok(201)
    await until_phase(api, pods(pod_namespace, "a"), "Running")
    path = pods(pod_namespace, "a", "log")
    assert (await api.get(path)).ok(200).strip() == "one\ntwo\nthree"
    (await api.get(pods(pod_namespace, "none", "log"))).refused(404, "NotFound")
    status = (await api.get(path, container="other")).refused(400, "BadRequest")
    assert "container other is not valid for pod a" in status["message"]
    (await api.delete(pods(pod_namespace, "a"), gracePeriodSeconds=0)).ok(200)


async def test_a_log_of_two_containers_needs_a_name(api: Api, pod_namespace: str) -> None:
    body = simulated()
    body["spec"]["containers"].append({"name": "side", "image": "x"})
    (await api.create(pods(pod_namespace), body)).ok(201)
    await until_phase(api, pods(pod_namespace, "a"), "Running", "Succeeded")
    answer = await api.get(pods(pod_namespace, "a", "log"))
    status = answer.refused(400, "BadRequest")
    assert status["message"] == (
        "a container name must be specified for pod a, choose one of: [main side]"
    )


async def test_there_is_no_log_before_a_pod_has_a_node(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), simulated(schedulerName="nobody"))).ok(201)
    answer = await api.get(pods(pod_namespace, "a", "log"))
    assert answer.status in {200, 204, 400}
    if answer.status != 400:
        assert answer.body == ""


def test_kubectl_sees_the_walk_of_a_pod(kubectl: Kubectl, pod_namespace: str) -> None:
    """`get -w` prints a line per change, as a user sees it."""
    waits = simulated("waits", schedulerName="nobody")
    kubectl.run("create", "-n", pod_namespace, "-f", "-", stdin=waits)
    command = ["kubectl", "get", "pods", "-n", pod_namespace, "-w"]
    watching = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=kubectl.environment()
    )
    try:
        assert watching.stdout is not None
        # It watches from its list on, whose lines these are.
        lines = [watching.stdout.readline().split() for _ in ("header", "waits")]
        body = simulated(sim={"runtime-seconds": "2", "startup-seconds": "0.5"})
        kubectl.run("create", "-n", pod_namespace, "-f", "-", stdin=body)
        kubectl.run(
            "wait",
            "-n",
            pod_namespace,
            "pod/a",
            "--for=jsonpath={.status.phase}=Succeeded",
            "--timeout=90s",
        )
        for line in watching.stdout:
            lines.append(line.split())
            if lines[-1][2] == "Completed":
                break
    finally:
        watching.terminate()
        watching.communicate(timeout=90)
    assert lines[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    states = list(dict.fromkeys(line[2] for line in lines[2:]))
    assert states[-2:] == ["Running", "Completed"]
    assert states[0] in {"Pending", "ContainerCreating"}
    assert lines[-1][1] == "0/1"
    assert ["a", "1/1", "Running"] in [line[:3] for line in lines]


def test_kubectl_waits_reads_and_describes(kubectl: Kubectl, pod_namespace: str) -> None:
    body = simulated(sim={"runtime-seconds": "600", "log": "one\ntwo"})
    kubectl.run("create", "-n", pod_namespace, "-f", "-", stdin=body)
    output = kubectl.run(
        "wait", "-n", pod_namespace, "--for=condition=Ready", "pod/a", "--timeout=90s"
    )
    assert output == "pod/a condition met\n"
    assert kubectl.run("logs", "-n", pod_namespace, "a", "--tail=1").strip() == "two"
    described = [
        line.split()
        for line in kubectl.run("describe", "-n", pod_namespace, "pod", "a").splitlines()
    ]
    assert ["Status:", "Running"] in described
    assert ["Ready:", "True"] in described
    assert any(line[:2] == ["Normal", "Scheduled"] for line in described)
    output = kubectl.run("delete", "-n", pod_namespace, "pod", "a", "--timeout=90s")
    # An older kubectl does not name the namespace.
    assert output in {
        f'pod "a" deleted from {pod_namespace} namespace\n',
        'pod "a" deleted\n',
    }
    assert "NotFound" in kubectl.fails("get", "-n", pod_namespace, "pod", "a")


def test_kubectl_prints_ready_nodes(kubectl: Kubectl) -> None:
    rows = [line.split() for line in kubectl.run("get", "nodes").splitlines()]
    assert rows[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    ready = [row for row in rows[1:] if row[1] == "Ready"]
    assert len(ready) >= 4
    described = kubectl.run("describe", "node", ready[0][0])
    assert "KubeletReady" in described
    assert "Allocatable:" in described
