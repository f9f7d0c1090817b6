"""Namespaces: their rules and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually, unique
from tests.devcluster.conformance.kinds import config_map, maps, pod, pods, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

NAMESPACES = "/api/v1/namespaces"


def namespace_named(name: str, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


async def test_a_new_namespace_is_active(api: Api, namespace: str) -> None:
    made = (await api.get(f"{NAMESPACES}/{namespace}")).ok(200)
    assert made["status"] == {"phase": "Active"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}


@pytest.mark.needs_release("1.21")
async def test_a_namespace_is_labelled_with_its_name(api: Api, namespace: str) -> None:
    made = (await api.get(f"{NAMESPACES}/{namespace}")).ok(200)
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace


@pytest.mark.parametrize("name", ["Upper", "dot.ted", "x" * 64, "-a"])
async def test_a_namespace_is_named_like_a_label(api: Api, name: str) -> None:
    status = (await api.create(NAMESPACES, namespace_named(name))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert status["details"]["kind"] == "Namespace"


async def test_nothing_is_made_in_a_namespace_that_is_not_there(api: Api, widgets: str) -> None:
    nowhere = unique("nowhere")
    for path, body in (
        (maps(nowhere), config_map("a")),
        (widgets_path(widgets, nowhere), widget(widgets, "a")),
    ):
        status = (await api.create(path, body)).refused(404, "NotFound")
        assert status["message"] == f'namespaces "{nowhere}" not found'
        assert status["details"] == {"name": nowhere, "kind": "namespaces"}
    assert (await api.get(maps(nowhere))).ok(200)["items"] == []


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_the_systems_own_namespaces_cannot_be_deleted(api: Api, name: str) -> None:
    status = (await api.delete(f"{NAMESPACES}/{name}")).refused(403, "Forbidden")
    assert "this namespace may not be deleted" in status["message"]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
async def test_these_namespaces_are_there_from_the_start(api: Api, name: str) -> None:
    async def is_there() -> bool:
        return (await api.get(f"{NAMESPACES}/{name}")).status == 200

    await eventually(is_there)


async def test_a_namespace_being_deleted_takes_nothing_new(
    api: Api, namespace: str, widgets: str
) -> None:
    held = config_map("held", finalizers=["example.com/hold"])
    (await api.create(maps(namespace), held)).ok(201)
    marked = (await api.delete(f"{NAMESPACES}/{namespace}")).ok(200)
    assert marked["kind"] == "Namespace"
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["status"]["phase"] == "Terminating"

    async def refused() -> Any:
        return (await api.create(maps(namespace), config_map(unique("a")))).status == 403

    await eventually(refused)
    for path, body, resource in (
        (maps(namespace), config_map("late"), "configmaps"),
        (widgets_path(widgets, namespace), widget(widgets, "late"), f"widgets.{widgets}"),
    ):
        status = (await api.create(path, body)).refused(403, "Forbidden")
        assert status["message"] == (
            f'{resource} "late" is forbidden: unable to create new content in namespace '
            f"{namespace} because it is being terminated"
        )
        causes = status["details"]["causes"]
        assert causes[0]["reason"] == "NamespaceTerminating"
    (await api.patch(maps(namespace, "held"), {"data": {"still": "writable"}})).ok(200)
    (await api.patch(maps(namespace, "held"), {"metadata": {"finalizers": None}})).ok(200)


@pytest.mark.full_cluster
async def test_a_deleted_namespace_takes_its_contents_along(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    (await api.delete(f"{NAMESPACES}/{namespace}")).ok(200)

    async def is_gone() -> Any:
        return (await api.get(f"{NAMESPACES}/{namespace}")).status == 404

    await eventually(is_gone)
    (await api.get(maps(namespace, "a"))).refused(404, "NotFound")
    (await api.get(widgets_path(widgets, namespace, "a"))).refused(404, "NotFound")


@pytest.mark.full_cluster
async def test_a_namespace_waits_for_finalizers_and_says_so(api: Api, namespace: str) -> None:
    held = config_map("held", finalizers=["example.com/hold"])
    (await api.create(maps(namespace), held)).ok(201)
    (await api.delete(f"{NAMESPACES}/{namespace}")).ok(200)

    async def says_what_is_left() -> Any:
        got = (await api.get(f"{NAMESPACES}/{namespace}")).ok(200)
        found = {entry["type"]: entry for entry in got["status"].get("conditions", [])}
        waiting = found.get("NamespaceFinalizersRemaining", {})
        return waiting.get("status") == "True" and "example.com/hold" in waiting["message"]

    await eventually(says_what_is_left)
    (await api.patch(maps(namespace, "held"), {"metadata": {"finalizers": None}})).ok(200)

    async def is_gone() -> Any:
        return (await api.get(f"{NAMESPACES}/{namespace}")).status == 404

    # A namespace controller looks again after half of its own estimate, here some seconds.
    await eventually(is_gone, 45)


@pytest.mark.full_cluster
async def test_pods_of_a_deleted_namespace_end_too(api: Api, pod_namespace: str) -> None:
    body = pod("a", annotations={"sim/runtime-seconds": "600"}, terminationGracePeriodSeconds=1)
    (await api.create(pods(pod_namespace), body)).ok(201)

    async def is_running() -> Any:
        return (await api.get(pods(pod_namespace, "a"))).body["status"]["phase"] == "Running"

    await eventually(is_running)
    (await api.delete(f"{NAMESPACES}/{pod_namespace}")).ok(200)

    async def is_gone() -> Any:
        return (await api.get(f"{NAMESPACES}/{pod_namespace}")).status == 404

    await eventually(is_gone, 45)


def test_kubectl_creates_a_namespace(kubectl: Kubectl) -> None:
    name = unique("conf")
    assert kubectl.run("create", "namespace", name) == f"namespace/{name} created\n"
    assert "already exists" in kubectl.fails("create", "namespace", name)
    output = kubectl.run("delete", "namespace", name, "--wait=false")
    assert output == f'namespace "{name}" deleted\n'
