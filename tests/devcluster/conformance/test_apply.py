"""Server-side apply: who owns which field, conflicts, and fields that are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.kinds import config_map, maps, pod, pods, widget, widgets_path
from tests.devcluster.conformance.test_ipujob_crd import TEMPLATE, alpha, ipujobs

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Answer, Api
    from tests.devcluster.conformance.kubectl import Kubectl

__all__ = ["ipujobs"]
APPLY = "application/apply-patch+yaml"


async def apply(api: Api, path: str, body: Any, manager: str = "one", **query: str) -> Answer:
    return await api.call("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)


def entries(body: Any) -> list[tuple[str, str, Any]]:
    """Return the owners: manager, operation and fields."""
    found = body["metadata"]["managedFields"]
    return [(each["manager"], each["operation"], each["fieldsV1"]) for each in found]


async def test_an_apply_creates_and_owns_its_fields(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    body = config_map("a", {"k": "v"}, labels={"app": "x"})
    made = (await apply(api, path, body)).ok(201)
    fields = {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:app": {}}}}
    assert entries(made) == [("one", "Apply", fields)]
    (entry,) = made["metadata"]["managedFields"]
    assert entry["apiVersion"] == "v1"
    assert entry["fieldsType"] == "FieldsV1"
    again = (await apply(api, path, body)).ok(200)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_another_value_is_a_conflict_that_names_the_owner(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await apply(api, path, config_map("a", {"k": "1"}))).ok(201)
    refused = await apply(api, path, config_map("a", {"k": "2"}), "two")
    status = refused.refused(409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}
    assert status["details"]["causes"] == [cause]
    assert (await api.get(path)).ok(200)["data"] == {"k": "1"}


async def test_several_conflicts_are_listed_by_owner(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await apply(api, path, config_map("a", {"k": "1", "l": "1"}))).ok(201)
    refused = await apply(api, path, config_map("a", {"k": "2", "l": "2"}), "two")
    message = refused.refused(409, "Conflict")["message"]
    assert message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.k\n- .data.l'


async def test_force_takes_the_field(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await apply(api, path, config_map("a", {"k": "1", "l": "1"}))).ok(201)
    taken = await apply(api, path, config_map("a", {"k": "2"}), "two", force="true")
    body = taken.ok(200)
    assert body["data"] == {"k": "2", "l": "1"}
    assert sorted(entries(body)) == [
        ("one", "Apply", {"f:data": {"f:l": {}}}),
        ("two", "Apply", {"f:data": {"f:k": {}}}),
    ]


async def test_the_same_value_is_owned_together(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await apply(api, path, config_map("a", {"k": "1"}))).ok(201)
    (await apply(api, path, config_map("a", {"k": "1"}), "two")).ok(200)
    left = (await apply(api, path, config_map("a"))).ok(200)  # one leaves it out
    assert left["data"] == {"k": "1"}
    gone = (await apply(api, path, config_map("a"), "two")).ok(200)
    assert not gone.get("data")


async def test_a_field_that_is_left_out_goes(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await apply(api, path, config_map("a", {"k": "1", "l": "1"}))).ok(201)
    patch = {"data": {"m": "1"}}
    (await api.call("PATCH", path, patch, content_type="application/merge-patch+json")).ok(200)
    left = (await apply(api, path, config_map("a", {"k": "1"}))).ok(200)
    assert left["data"] == {"k": "1", "m": "1"}


async def test_a_plain_write_takes_the_fields_that_it_changes(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await apply(api, path, config_map("a", {"k": "1", "l": "1"}))).ok(201)
    merge = "application/merge-patch+json"
    patch = {"data": {"k": "2"}}
    changed = await api.call("PATCH", path, patch, content_type=merge, fieldManager="editor")
    assert sorted(entries(changed.ok(200))) == [
        ("editor", "Update", {"f:data": {"f:k": {}}}),
        ("one", "Apply", {"f:data": {"f:l": {}}}),
    ]
    status = (await apply(api, path, config_map("a", {"k": "3", "l": "1"}))).refused(
        409, "Conflict"
    )
    assert status["message"].endswith('conflict with "editor" using v1: .data.k')


async def test_items_of_a_list_are_known_by_their_keys(api: Api, pod_namespace: str) -> None:
    path = pods(pod_namespace, "a")
    first = pod("a")
    first["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    made = (await apply(api, path, first)).ok(201)
    ((_, _, fields), *_) = entries(made)
    container = fields["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert container == {
        ".": {},
        "f:image": {},
        "f:name": {},
        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
    }
    other = pod("a")
    other["spec"]["containers"][0]["image"] = "example.com/main:2"
    status = (await apply(api, path, other, "two")).refused(409, "Conflict")
    assert status["details"]["causes"][0]["field"] == '.spec.containers[name="main"].image'


async def test_lists_of_a_custom_kind_without_keys_are_one_field(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace, "a")
    made = (await apply(api, path, widget(widgets, "a", tags=["x", "y"], count=3))).ok(201)
    ((_, _, fields),) = entries(made)
    assert fields == {"f:spec": {"f:tags": {}, "f:count": {}}}
    changed = widget(widgets, "a", tags=["x"])
    status = (await apply(api, path, changed, "two")).refused(409, "Conflict")
    assert status["details"]["causes"][0]["field"] == ".spec.tags"


async def test_a_status_has_its_own_owners(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace, "a")
    (await apply(api, path, widget(widgets, "a", count=3))).ok(201)
    body = {**widget(widgets, "a"), "status": {"phase": "Up"}}
    del body["spec"]
    done = (await apply(api, f"{path}/status", body, "controller")).ok(200)
    assert done["status"] == {"phase": "Up"}
    assert done["spec"]["count"] == 3
    found = {each["manager"]: each for each in done["metadata"]["managedFields"]}
    assert found["controller"]["subresource"] == "status"
    assert found["controller"]["fieldsV1"] == {"f:status": {"f:phase": {}}}
    assert found["one"]["fieldsV1"] == {"f:spec": {"f:count": {}}}


async def test_an_object_that_was_created_otherwise_has_an_owner(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await api.call("POST", maps(namespace), config_map("a", {"k": "1"}), fieldManager="it")).ok(
        201
    )
    status = (await apply(api, path, config_map("a", {"k": "2"}))).refused(409, "Conflict")
    assert status["details"]["causes"][0]["message"] == 'conflict with "it" using v1'


@pytest.mark.parametrize(
    ("query", "content_type", "want"),
    [
        ({}, APPLY, "fieldManager: Required value: is required for apply patch"),
        (
            {"force": "true", "fieldManager": "a"},
            "application/merge-patch+json",
            "force: Forbidden: may not be specified for non-apply patch",
        ),
    ],
    ids=["no manager", "force without apply"],
)
async def test_wrong_options_are_refused(
    query: dict[str, str], content_type: str, want: str, api: Api, namespace: str
) -> None:
    (await api.call("POST", maps(namespace), config_map("a"))).ok(201)
    answer = await api.call(
        "PATCH", maps(namespace, "a"), config_map("a"), content_type=content_type, **query
    )
    assert want in answer.refused(422, "Invalid")["message"]


async def test_an_apply_to_another_name_or_with_owners_is_refused(api: Api, namespace: str) -> None:
    answer = await apply(api, maps(namespace, "a"), config_map("b"))
    assert answer.refused(400, "BadRequest")
    entry = {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    owned = config_map("a", managedFields=[{**entry, "fieldsV1": {}}])
    refused = (await apply(api, maps(namespace, "a"), owned)).refused(400, "BadRequest")
    assert "metadata.managedFields must be nil" in refused["message"]


def test_kubectl_applies_on_the_server_side(kubectl: Kubectl, namespace: str) -> None:
    command = ("apply", "-n", namespace, "--server-side", "-f", "-")
    output = kubectl.run(*command, stdin=config_map("a", {"k": "v"}))
    assert output == "configmap/a serverside-applied\n"
    output = kubectl.fails(*command, "--field-manager=other", stdin=config_map("a", {"k": "w"}))
    assert 'conflict with "kubectl": .data.k' in output
    forced = ("--field-manager=other", "--force-conflicts")
    kubectl.run(*command, *forced, stdin=config_map("a", {"k": "w"}))
    assert kubectl.json("get", "-n", namespace, "cm", "a")["data"] == {"k": "w"}


def test_kubectl_goes_over_to_apply_on_the_server_side(kubectl: Kubectl, namespace: str) -> None:
    command = ("apply", "-n", namespace, "-f", "-")
    kubectl.run(*command, stdin=config_map("a", {"k": "v", "l": "v"}))
    other = ("--server-side", "--field-manager=helm")
    assert ": .data.k" in kubectl.fails(*command, *other, stdin=config_map("a", {"k": "w"}))
    kubectl.run(*command, "--server-side", stdin=config_map("a", {"k": "w"}))
    assert kubectl.json("get", "-n", namespace, "cm", "a")["data"]["k"] == "w"


@pytest.mark.usefixtures("ipujobs")
def test_kubectl_applies_a_job_on_the_server_side(kubectl: Kubectl, namespace: str) -> None:
    command = ("apply", "-n", namespace, "--server-side", "-f", "-")
    output = kubectl.run(*command, stdin=alpha())
    assert output == "ipujob.graphcore.ai/a serverside-applied\n"
    output = kubectl.run(*command, stdin=alpha(workers={"replicas": 2, "template": TEMPLATE}))
    spec = kubectl.json("get", "-n", namespace, "ipujob", "a")["spec"]
    assert spec["workers"]["replicas"] == 2
    assert spec["workers"]["template"]["spec"]["containers"][0]["name"] == "mnist"
