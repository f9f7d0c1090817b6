"""Tables: what kubectl prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import unique
from tests.devcluster.conformance.kinds import config_map, maps, pod, pods, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
AGE = re.compile(r"^(\d+[smhd])+$|^<unknown>$")


async def table(api: Api, path: str, **params: Any) -> Json:
    found = (await api.call("GET", path, headers=TABLE, **params)).ok(200)
    assert found["kind"] == "Table"
    assert found["apiVersion"] == "meta.k8s.io/v1"
    return dict(found)


def cells(found: Json, row: int = 0) -> dict[str, Any]:
    names = [column["name"] for column in found["columnDefinitions"]]
    return dict(zip(names, found["rows"][row]["cells"], strict=True))


# path, columns without -o wide, columns that -o wide adds
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLUMNS: dict[str, tuple[str, list[str], list[str]]] = {
    "pods": (
        "/api/v1/pods",
        ["Name", "Ready", "Status", "Restarts", "Age"],
        ["IP", "Node", "Nominated Node", "Readiness Gates"],
    ),
    "nodes": (
        "/api/v1/nodes",
        ["Name", "Status", "Roles", "Age", "Version"],
        ["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"],
    ),
    "namespaces": ("/api/v1/namespaces", ["Name", "Status", "Age"], []),
    "configmaps": ("/api/v1/configmaps", ["Name", "Data", "Age"], []),
    "secrets": ("/api/v1/secrets", ["Name", "Type", "Data", "Age"], []),
    "events": (
        "/api/v1/events",
        ["Last Seen", "Type", "Reason", "Object", "Message"],
        ["Subobject", "Source", "First Seen", "Count", "Name"],
    ),
    "volumes": (
        "/api/v1/persistentvolumes",
        [
            "Name",
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "Reason",
            "Age",
        ],
        ["VolumeMode"],
    ),
    "claims": (
        "/api/v1/persistentvolumeclaims",
        ["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "Age"],
        ["VolumeMode"],
    ),
    "leases": ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"], []),
    "roles": (f"{_RBAC}/roles", ["Name", "Created At"], []),
    "rolebindings": (
        f"{_RBAC}/rolebindings",
        ["Name", "Role", "Age"],
        ["Users", "Groups", "ServiceAccounts"],
    ),
    "clusterroles": (f"{_RBAC}/clusterroles", ["Name", "Created At"], []),
    "crds": (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        ["Name", "Scope", "Versions", "Created At"],
        ["Group", "Kind", "ShortNames", "Established"],
    ),
}
# Columns that came after 1.20.
LATER = {"VolumeAttributesClass"}


@pytest.mark.parametrize("kind", COLUMNS)
async def test_a_kind_has_these_columns(api: Api, kind: str) -> None:
    path, always, wide = COLUMNS[kind]
    found = [
        column
        for column in (await table(api, path))["columnDefinitions"]
        if column["name"] not in LATER
    ]
    assert [column["name"] for column in found if column["priority"] == 0] == always
    assert [column["name"] for column in found if column["priority"] == 1] == wide
    assert all(column["type"] and "format" in column for column in found)


async def test_a_row_carries_the_metadata_of_its_object(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a", {"x": "1", "y": "2"}))).ok(201)
    found = await table(api, maps(namespace), fieldSelector="metadata.name=a")
    assert int(found["metadata"]["resourceVersion"]) > 0
    assert cells(found)["Name"] == "a"
    assert cells(found)["Data"] == 2
    assert AGE.match(cells(found)["Age"])
    carried = found["rows"][0]["object"]
    assert carried["kind"] == "PartialObjectMetadata"
    assert carried["metadata"]["uid"] == made["metadata"]["uid"]
    assert "data" not in carried


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
async def test_a_row_carries_what_is_asked_for(api: Api, namespace: str, include: str) -> None:
    (await api.create(maps(namespace), config_map("a", {"x": "1"}))).ok(201)
    found = await table(
        api, maps(namespace), fieldSelector="metadata.name=a", includeObject=include
    )
    carried = found["rows"][0].get("object")
    if include == "None":
        assert not carried
    else:
        kinds = {"Metadata": "PartialObjectMetadata", "Object": "ConfigMap"}
        assert carried["kind"] == kinds[include]


async def test_one_object_is_a_table_of_one_row(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    assert len((await table(api, maps(namespace, "a")))["rows"]) == 1


async def test_an_empty_table_has_columns_and_no_rows(api: Api, namespace: str) -> None:
    found = await table(api, pods(namespace))
    assert found["rows"] == []
    assert found["columnDefinitions"]


# status, Ready, Status, Restarts
def _state(name: str, *, ready: bool, restarts: int = 0, **state: Json) -> Json:
    return {
        "name": name,
        "ready": ready,
        "restartCount": restarts,
        "image": "x",
        "imageID": "x",
        "state": state,
    }


POD_STATES: dict[str, tuple[Json, str, str, str]] = {
    "pending": ({"phase": "Pending"}, "0/1", "Pending", "0"),
    "running": (
        {"phase": "Running", "containerStatuses": [_state("main", ready=True, running={})]},
        "1/1",
        "Running",
        "0",
    ),
    "not-ready": (
        {"phase": "Running", "containerStatuses": [_state("main", ready=False, running={})]},
        "0/1",
        "Running",
        "0",
    ),
    "completed": (
        {
            "phase": "Succeeded",
            "containerStatuses": [
                _state("main", ready=False, terminated={"exitCode": 0, "reason": "Completed"})
            ],
        },
        "0/1",
        "Completed",
        "0",
    ),
    "error": (
        {
            "phase": "Failed",
            "containerStatuses": [
                _state("main", ready=False, terminated={"exitCode": 3, "reason": "Error"})
            ],
        },
        "0/1",
        "Error",
        "0",
    ),
    "exit-code": (
        {
            "phase": "Failed",
            "containerStatuses": [_state("main", ready=False, terminated={"exitCode": 3})],
        },
        "0/1",
        "ExitCode:3",
        "0",
    ),
    "crash-loop": (
        {
            "phase": "Running",
            "containerStatuses": [
                _state("main", ready=False, restarts=4, waiting={"reason": "CrashLoopBackOff"})
            ],
        },
        "0/1",
        "CrashLoopBackOff",
        "4",
    ),
    "evicted": ({"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted", "0"),
}


@pytest.mark.parametrize("row", POD_STATES)
async def test_a_pod_is_printed_by_its_state(api: Api, pod_namespace: str, row: str) -> None:
    status, ready, word, restarts = POD_STATES[row]
    (await api.create(pods(pod_namespace), pod("a", schedulerName="nobody"))).ok(201)
    (await api.patch(pods(pod_namespace, "a", "status"), {"status": status})).ok(200)
    found = cells(await table(api, pods(pod_namespace, "a")))
    assert (found["Ready"], found["Status"]) == (ready, word)
    assert str(found["Restarts"]) == restarts
    assert AGE.match(found["Age"])


INIT_STATES: dict[str, tuple[list[Json], str]] = {
    "waiting": ([_state("i", ready=False, waiting={"reason": "PodInitializing"})], "Init:0/2"),
    "running": ([_state("i", ready=False, running={})], "Init:0/2"),
    "one-done": (
        [
            _state("i", ready=True, terminated={"exitCode": 0, "reason": "Completed"}),
            _state("j", ready=False, running={}),
        ],
        "Init:1/2",
    ),
    "failed": (
        [_state("i", ready=False, terminated={"exitCode": 1, "reason": "Error"})],
        "Init:Error",
    ),
}


@pytest.mark.parametrize("row", INIT_STATES)
async def test_a_pod_with_init_containers_says_how_far_it_is(
    api: Api, pod_namespace: str, row: str
) -> None:
    states, word = INIT_STATES[row]
    init = [{"name": name, "image": "x"} for name in ("i", "j")]
    body = pod("a", schedulerName="nobody", initContainers=init)
    (await api.create(pods(pod_namespace), body)).ok(201)
    status = {"phase": "Pending", "initContainerStatuses": states}
    (await api.patch(pods(pod_namespace, "a", "status"), {"status": status})).ok(200)
    assert cells(await table(api, pods(pod_namespace, "a")))["Status"] == word


async def test_a_pod_being_deleted_is_terminating(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), pod("a", nodeName="nowhere"))).ok(201)
    (await api.delete(pods(pod_namespace, "a"))).ok(200)
    found = cells(await table(api, pods(pod_namespace, "a")))
    assert found["Status"] == "Terminating"
    assert found["Node"] == "nowhere"


async def test_a_node_is_printed_by_its_conditions(api: Api) -> None:
    name = unique("table-node")
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"node-role.kubernetes.io/ipu": "", "node-role.kubernetes.io/a": ""},
        },
        "spec": {"unschedulable": True},
    }
    (await api.create("/api/v1/nodes", body)).ok(201)
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
        "nodeInfo": {
            "kubeletVersion": "v1.20.0",
            "osImage": "stone",
            "kernelVersion": "6.1",
            "containerRuntimeVersion": "none://1",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
    (await api.patch(f"/api/v1/nodes/{name}/status", {"status": status})).ok(200)
    found = cells(await table(api, f"/api/v1/nodes/{name}"))
    assert found["Status"] == "Ready,SchedulingDisabled"
    assert found["Roles"] == "a,ipu"
    assert found["Version"] == "v1.20.0"
    assert found["Internal-IP"] == "10.1.2.3"
    assert found["External-IP"] == "<none>"
    assert found["OS-Image"] == "stone"
    (await api.delete(f"/api/v1/nodes/{name}")).ok(200)


async def test_the_columns_of_a_crd_are_read_by_json_path(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a", count=3))).ok(201)
    found = await table(api, widgets_path(widgets, namespace, "a"))
    columns = {entry["name"]: entry for entry in found["columnDefinitions"]}
    assert list(columns) == ["Name", "Count", "Color", "Ready", "When", "Code", "Age"]
    assert columns["Count"]["type"] == "integer"
    assert columns["When"]["type"] == "date"
    assert columns["Code"]["priority"] == 1
    row = cells(found)
    assert (row["Name"], row["Count"], row["Color"]) == ("a", 3, "red")
    assert row["Ready"] is None
    assert row["When"] is None
    assert AGE.match(row["Age"])


async def test_a_kind_without_columns_has_name_and_age(api: Api) -> None:
    from tests.devcluster.conformance.kinds import CRDS, crd_of
    from tests.devcluster.conformance.test_crds import SMALL, establish, gadget_group

    group = gadget_group()
    await establish(api, crd_of(SMALL, group))
    found = await table(api, f"/apis/{group}/v1/gadgets")
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Age"]
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)


async def test_a_watch_as_tables_names_the_columns_once(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace)
    (await api.create(path, widget(widgets, "a"))).ok(201)
    (await api.create(path, widget(widgets, "b"))).ok(201)
    async with api.watch(path, headers=TABLE) as watch:
        first, second = await watch.next(), await watch.next()
    assert first["type"] == second["type"] == "ADDED"
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"]
    assert not second["object"].get("columnDefinitions")


def test_kubectl_prints_wide_columns(kubectl: Kubectl, namespace: str, widgets: str) -> None:
    body = widget(widgets, "a", count=3, code="abc")
    kubectl.run("apply", "-n", namespace, "-f", "-", stdin=body)
    kind = f"widgets.{widgets}"
    narrow = kubectl.rows("get", "-n", namespace, kind)[0]
    wide = kubectl.run("get", "-n", namespace, kind, "-o", "wide").splitlines()
    assert "CODE" not in [cell.strip() for cell in narrow]
    assert wide[0].split() == ["NAME", "COUNT", "COLOR", "READY", "WHEN", "CODE", "AGE"]
    assert wide[1].split()[:3] == ["a", "3", "red"]
    assert "abc" in wide[1].split()


def test_kubectl_prints_all_namespaces_labels_and_json_paths(
    kubectl: Kubectl, namespace: str
) -> None:
    body = config_map("a", {"k": "v"}, labels={"in": namespace})
    kubectl.run("apply", "-n", namespace, "-f", "-", stdin=body)
    output = kubectl.run("get", "cm", "-A", "-l", f"in={namespace}", "--show-labels")
    lines = output.splitlines()
    assert lines[0].split() == ["NAMESPACE", "NAME", "DATA", "AGE", "LABELS"]
    assert lines[1].split()[:3] == [namespace, "a", "1"]
    assert f"in={namespace}" in lines[1]
    output = kubectl.run("get", "cm", "a", "-n", namespace, "-o", "jsonpath={.data.k}")
    assert output == "v"
    output = kubectl.run("get", "cm", "-n", namespace, "-o", "yaml")
    assert "kind: List" in output


def test_kubectl_says_when_there_is_nothing(kubectl: Kubectl, namespace: str) -> None:
    done = kubectl.call("get", "pods", "-n", namespace)
    assert done.returncode == 0
    assert done.stderr == f"No resources found in {namespace} namespace.\n"
