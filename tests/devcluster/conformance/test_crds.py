"""CustomResourceDefinitions: lifecycle, and which are refused."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tests.devcluster.conformance.api import eventually, unique
from tests.devcluster.conformance.kinds import CRDS, WIDGET_CRD, crd_of, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

SMALL: Json = {
    "plural": "gadgets",
    "kind": "Gadget",
    "schema": {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
}


def conditions(crd: Json) -> dict[str, str]:
    found = crd.get("status", {}).get("conditions") or []
    return {condition["type"]: condition["status"] for condition in found}


async def establish(api: Api, crd: Json) -> Json:
    """Create a CRD and wait until its objects are served."""
    (await api.create(CRDS, crd)).ok(201)
    path = f"{CRDS}/{crd['metadata']['name']}"

    async def is_established() -> Any:
        got = (await api.get(path)).ok(200)
        return got if conditions(got).get("Established") == "True" else None

    made: Json = await eventually(is_established)
    spec = crd["spec"]
    version = next(version["name"] for version in spec["versions"] if version["served"])
    served = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"

    async def is_served() -> Any:
        return (await api.get(served)).status == 200

    await eventually(is_served)
    return made


def gadget_group() -> str:
    return f"{unique('g')}.example.com"


async def test_a_crd_is_accepted_established_and_served(api: Api) -> None:
    group = gadget_group()
    made = await establish(api, crd_of(SMALL, group))
    assert conditions(made) == {"NamesAccepted": "True", "Established": "True"}
    assert made["status"]["acceptedNames"]["plural"] == "gadgets"
    assert made["status"]["acceptedNames"]["kind"] == "Gadget"
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["metadata"]["generation"] == 1
    groups = (await api.get("/apis")).ok(200)["groups"]
    assert any(entry["name"] == group for entry in groups)
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)


async def test_names_of_a_crd_have_defaults(api: Api) -> None:
    crd = crd_of(SMALL, gadget_group())
    del crd["spec"]["names"]["singular"], crd["spec"]["names"]["listKind"]
    made = (await api.create(CRDS, crd, dryRun="All")).ok(201)
    assert made["spec"]["names"]["singular"] == "gadget"
    assert made["spec"]["names"]["listKind"] == "GadgetList"
    assert made["spec"]["conversion"] == {"strategy": "None"}


async def test_deleting_a_crd_deletes_its_objects_and_its_path(api: Api, namespace: str) -> None:
    group = gadget_group()
    crd = crd_of(SMALL, group)
    await establish(api, crd)
    path = f"/apis/{group}/v1/namespaces/{namespace}/gadgets"
    body = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}}
    (await api.create(path, body)).ok(201)
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)

    async def is_gone() -> Any:
        crd_gone = (await api.get(f"{CRDS}/gadgets.{group}")).status == 404
        return crd_gone and (await api.get(path)).status == 404

    await eventually(is_gone)
    await establish(api, crd)
    assert (await api.get(path)).ok(200)["items"] == []
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)


async def test_a_changed_schema_holds_for_the_next_write(api: Api, namespace: str) -> None:
    group = gadget_group()
    crd = crd_of(SMALL, group)
    await establish(api, crd)
    path = f"/apis/{group}/v1/namespaces/{namespace}/gadgets"

    async def refused(number: int) -> Any:
        body = {
            "apiVersion": f"{group}/v1",
            "kind": "Gadget",
            "metadata": {"name": unique("n")},
            "spec": {"n": number},
        }
        return (await api.create(path, body)).status == 422

    assert not await refused(7)
    patch = [
        {
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n/maximum",
            "value": 5,
        }
    ]
    changed = (await api.patch(f"{CRDS}/gadgets.{group}", patch, "json")).ok(200)
    assert changed["metadata"]["generation"] == 2
    await eventually(lambda: refused(7))
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)


async def test_a_cluster_scoped_kind_has_no_namespaced_path(api: Api, namespace: str) -> None:
    group = gadget_group()
    await establish(api, crd_of({**SMALL, "scope": "Cluster"}, group))
    body = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}}
    made = (await api.create(f"/apis/{group}/v1/gadgets", body)).ok(201)
    assert "namespace" not in made["metadata"]
    assert (await api.get(f"/apis/{group}/v1/namespaces/{namespace}/gadgets/a")).status == 404
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)


async def test_a_kind_without_subresources_has_none(api: Api, namespace: str) -> None:
    group = gadget_group()
    source = copy.deepcopy(SMALL)
    source["schema"]["properties"]["status"] = {
        "type": "object",
        "properties": {"phase": {"type": "string"}},
    }
    await establish(api, crd_of(source, group))
    path = f"/apis/{group}/v1/namespaces/{namespace}/gadgets"
    body = {
        "apiVersion": f"{group}/v1",
        "kind": "Gadget",
        "metadata": {"name": "a"},
        "status": {"phase": "kept"},
    }
    assert (await api.create(path, body)).ok(201)["status"] == {"phase": "kept"}
    assert (await api.get(f"{path}/a/status")).status == 404
    assert (await api.get(f"{path}/a/scale")).status == 404
    changed = (await api.patch(f"{path}/a", {"status": {"phase": "new"}})).ok(200)
    # Without a status subresource the status counts as a part of the desired state.
    assert changed["metadata"]["generation"] == 2
    (await api.delete(f"{CRDS}/gadgets.{group}")).ok(200)


async def test_a_taken_kind_is_not_accepted(api: Api) -> None:
    group = gadget_group()
    await establish(api, crd_of(SMALL, group))
    other = crd_of({**SMALL, "plural": "gizmos"}, group)
    other["spec"]["names"]["shortNames"] = []
    (await api.create(CRDS, other)).ok(201)

    async def judgement() -> Any:
        return conditions((await api.get(f"{CRDS}/gizmos.{group}")).ok(200)).get("NamesAccepted")

    assert await eventually(judgement) == "False"
    for plural in ("gadgets", "gizmos"):
        (await api.delete(f"{CRDS}/{plural}.{group}")).ok(200)


def test_kubectl_applies_a_crd_and_waits_for_it(kubectl: Kubectl, namespace: str) -> None:
    group = gadget_group()
    output = kubectl.run("apply", "-f", "-", stdin=crd_of(WIDGET_CRD, group))
    name = f"widgets.{group}"
    assert output == f"customresourcedefinition.apiextensions.k8s.io/{name} created\n"
    kubectl.wait_established(name)
    again = kubectl.run("apply", "-f", "-", stdin=crd_of(WIDGET_CRD, group))
    assert again == f"customresourcedefinition.apiextensions.k8s.io/{name} unchanged\n"
    made = kubectl.run("apply", "-n", namespace, "-f", "-", stdin=widget(group, "a", count=1))
    assert made == f"widget.{group}/a created\n"
    changed = kubectl.run("apply", "-n", namespace, "-f", "-", stdin=widget(group, "a", count=2))
    assert changed == f"widget.{group}/a configured\n"
    output = kubectl.run("delete", "crd", name)
    assert output == f'customresourcedefinition.apiextensions.k8s.io "{name}" deleted\n'
    refused = kubectl.fails("get", "-n", namespace, name)
    assert "the server" in refused


async def test_a_custom_name_follows_the_rules_of_names(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace)
    status = (await api.create(path, widget(widgets, "Bad_Name"))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert "a lowercase RFC 1123 subdomain" in status["message"]
