"""Patches: JSON, merge and strategic, and what each refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually
from tests.devcluster.conformance.kinds import config_map, maps, pod, pods, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json

# (patch kind, data before, patch, data after)
DATA_PATCHES: dict[str, tuple[str, Json, Any, Json | None]] = {
    "merge-adds": ("merge", {"a": "1"}, {"data": {"b": "2"}}, {"a": "1", "b": "2"}),
    "merge-null-removes": ("merge", {"a": "1", "b": "2"}, {"data": {"a": None}}, {"b": "2"}),
    "merge-null-of-nothing": ("merge", {"a": "1"}, {"data": {"z": None}}, {"a": "1"}),
    "merge-removes-all": ("merge", {"a": "1"}, {"data": None}, None),
    "strategic-adds": ("strategic", {"a": "1"}, {"data": {"b": "2"}}, {"a": "1", "b": "2"}),
    "strategic-null": ("strategic", {"a": "1", "b": "2"}, {"data": {"a": None}}, {"b": "2"}),
    "strategic-replace": (
        "strategic",
        {"a": "1"},
        {"data": {"$patch": "replace", "z": "9"}},
        {"z": "9"},
    ),
    "strategic-delete": ("strategic", {"a": "1"}, {"data": {"$patch": "delete"}}, None),
    "strategic-retain": (
        "strategic",
        {"a": "1", "b": "2"},
        {"data": {"$retainKeys": ["b", "c"], "c": "3"}},
        {"b": "2", "c": "3"},
    ),
    "json-add": (
        "json",
        {"a": "1"},
        [{"op": "add", "path": "/data/b", "value": "2"}],
        {"a": "1", "b": "2"},
    ),
    "json-replace": (
        "json",
        {"a": "1"},
        [{"op": "replace", "path": "/data/a", "value": "2"}],
        {"a": "2"},
    ),
    "json-remove": (
        "json",
        {"a": "1", "b": "2"},
        [{"op": "remove", "path": "/data/a"}],
        {"b": "2"},
    ),
    "json-move": (
        "json",
        {"a": "1"},
        [{"op": "move", "from": "/data/a", "path": "/data/b"}],
        {"b": "1"},
    ),
    "json-copy": (
        "json",
        {"a": "1"},
        [{"op": "copy", "from": "/data/a", "path": "/data/b"}],
        {"a": "1", "b": "1"},
    ),
    "json-test": (
        "json",
        {"a": "1"},
        [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "replace", "path": "/data/a", "value": "2"},
        ],
        {"a": "2"},
    ),
    "json-escape": (
        "json",
        {"a": "1"},
        [{"op": "add", "path": "/data/x.y", "value": "2"}],
        {"a": "1", "x.y": "2"},
    ),
}


@pytest.mark.parametrize("row", DATA_PATCHES)
async def test_a_patch_makes_this_of_the_data(api: Api, namespace: str, row: str) -> None:
    kind, before, patch, after = DATA_PATCHES[row]
    (await api.create(maps(namespace), config_map("a", before))).ok(201)
    made = (await api.patch(maps(namespace, "a"), patch, kind)).ok(200)
    assert made.get("data") == after
    assert (await api.get(maps(namespace, "a"))).body.get("data") == after


# (kind, patch, status, reason, part of the message)
BAD_PATCHES: dict[str, tuple[str, Any, int, str, str]] = {
    "json-test-fails": (
        "json",
        [{"op": "test", "path": "/data/a", "value": "x"}],
        422,
        "Invalid",
        "",
    ),
    "json-remove-nothing": ("json", [{"op": "remove", "path": "/data/z"}], 422, "Invalid", ""),
    "json-replace-nothing": (
        "json",
        [{"op": "replace", "path": "/data/z/y", "value": "1"}],
        422,
        "Invalid",
        "",
    ),
    "json-no-list": ("json", {"data": {}}, 400, "BadRequest", ""),
    "json-broken": ("json", "[{", 400, "BadRequest", ""),
    "stale-version": (
        "merge",
        {"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}},
        409,
        "Conflict",
        "the object has been modified",
    ),
    "other-name": (
        "merge",
        {"metadata": {"name": "b"}},
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    ),
    "bad-label": ("merge", {"metadata": {"labels": {"a": "b c"}}}, 422, "Invalid", "labels"),
}


@pytest.mark.parametrize("row", BAD_PATCHES)
async def test_a_patch_that_cannot_be_is_refused(api: Api, namespace: str, row: str) -> None:
    kind, patch, code, reason, message = BAD_PATCHES[row]
    (await api.create(maps(namespace), config_map("a", {"a": "1"}))).ok(201)
    status = (await api.patch(maps(namespace, "a"), patch, kind)).refused(code, reason)
    assert message in status["message"]
    assert (await api.get(maps(namespace, "a"))).body["data"] == {"a": "1"}


@pytest.mark.parametrize("patch", ["[]", "{"], ids=["list", "broken"])
async def test_a_merge_patch_that_is_no_object_is_refused(
    api: Api, namespace: str, patch: str
) -> None:
    (await api.create(maps(namespace), config_map("a", {"a": "1"}))).ok(201)
    answer = await api.patch(maps(namespace, "a"), patch)
    assert answer.status in {400, 422, 500}, "the code changed from release to release"
    assert answer.body["kind"] == "Status"
    assert (await api.get(maps(namespace, "a"))).body["data"] == {"a": "1"}


async def test_a_patch_cannot_change_the_uid(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}
    answer = await api.patch(maps(namespace, "a"), patch)
    assert answer.status in {409, 422}, answer.body
    assert (await api.get(maps(namespace, "a"))).body == made


async def test_a_patch_with_the_current_version_is_taken(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    version = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}
    new = (await api.patch(maps(namespace, "a"), patch)).ok(200)
    assert new["metadata"]["resourceVersion"] != version


async def test_a_patch_that_changes_nothing_keeps_the_version(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a", {"a": "1"}))).ok(201)
    same = (await api.patch(maps(namespace, "a"), {"data": {"a": "1"}})).ok(200)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_custom_objects_take_no_strategic_patch(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    path = widgets_path(widgets, namespace, "a")
    answer = await api.patch(path, {"spec": {"count": 1}}, "strategic")
    status = answer.refused(415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in status["message"]


async def test_a_merge_patch_replaces_lists_as_a_whole(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", tags=["a", "b"])
    (await api.create(widgets_path(widgets, namespace), body)).ok(201)
    path = widgets_path(widgets, namespace, "a")
    assert (await api.patch(path, {"spec": {"tags": ["c"]}})).ok(200)["spec"]["tags"] == ["c"]


async def test_a_json_patch_works_on_lists(api: Api, namespace: str, widgets: str) -> None:
    body = widget(widgets, "a", tags=["a", "b"])
    (await api.create(widgets_path(widgets, namespace), body)).ok(201)
    patch = [
        {"op": "add", "path": "/spec/tags/-", "value": "z"},
        {"op": "remove", "path": "/spec/tags/0"},
        {"op": "add", "path": "/spec/tags/0", "value": "first"},
    ]
    made = (await api.patch(widgets_path(widgets, namespace, "a"), patch, "json")).ok(200)
    assert made["spec"]["tags"] == ["first", "b", "z"]


async def _two_container_pod(api: Api, namespace: str) -> str:
    body = pod("a", nodeName="nowhere", tolerations=[{"key": "a", "operator": "Exists"}])
    body["spec"]["containers"].append({"name": "side", "image": "example.com/side:1"})
    (await api.create(pods(namespace), body)).ok(201)
    return pods(namespace, "a")


def _images(made: Json) -> dict[str, str]:
    return {entry["name"]: entry["image"] for entry in made["spec"]["containers"]}


async def test_a_strategic_patch_finds_containers_by_name(api: Api, pod_namespace: str) -> None:
    path = await _two_container_pod(api, pod_namespace)
    patch = {"spec": {"containers": [{"name": "side", "image": "example.com/side:2"}]}}
    made = (await api.patch(path, patch, "strategic")).ok(200)
    assert _images(made) == {"main": "example.com/main:1", "side": "example.com/side:2"}


async def test_a_strategic_patch_keeps_the_order_it_is_told(api: Api, pod_namespace: str) -> None:
    path = await _two_container_pod(api, pod_namespace)
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "main"}, {"name": "side"}],
            "containers": [{"name": "main", "image": "example.com/main:2"}],
        }
    }
    made = (await api.patch(path, patch, "strategic")).ok(200)
    assert [entry["name"] for entry in made["spec"]["containers"]] == ["main", "side"]
    assert _images(made)["main"] == "example.com/main:2"


async def test_a_strategic_patch_of_conditions_merges_by_type(api: Api, pod_namespace: str) -> None:
    path = await _two_container_pod(api, pod_namespace)

    async def put(kind: str, status: str) -> Any:
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        return (await api.patch(f"{path}/status", patch, "strategic")).ok(200)["status"]

    await put("example.com/a", "True")
    await put("example.com/b", "True")
    found = (await put("example.com/a", "False"))["conditions"]
    own = {entry["type"]: entry["status"] for entry in found if "example.com" in entry["type"]}
    assert own == {"example.com/a": "False", "example.com/b": "True"}


async def test_a_strategic_patch_deletes_one_element(api: Api, pod_namespace: str) -> None:
    path = await _two_container_pod(api, pod_namespace)
    for kind in ("example.com/a", "example.com/b"):
        patch: Json = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        (await api.patch(f"{path}/status", patch, "strategic")).ok(200)
    patch = {"status": {"conditions": [{"type": "example.com/a", "$patch": "delete"}]}}
    made = (await api.patch(f"{path}/status", patch, "strategic")).ok(200)
    kinds = [entry["type"] for entry in made["status"]["conditions"]]
    assert "example.com/a" not in kinds
    assert "example.com/b" in kinds


async def test_finalizers_merge_as_a_set_and_single_ones_are_removed(
    api: Api, namespace: str
) -> None:
    path = maps(namespace, "a")
    (await api.create(maps(namespace), config_map("a", finalizers=["example.com/a"]))).ok(201)
    patch: Json = {"metadata": {"finalizers": ["example.com/b"]}}
    made = (await api.patch(path, patch, "strategic")).ok(200)
    assert set(made["metadata"]["finalizers"]) == {"example.com/a", "example.com/b"}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    made = (await api.patch(path, patch, "strategic")).ok(200)
    assert made["metadata"]["finalizers"] == ["example.com/b"]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)


async def test_owner_references_merge_by_uid(api: Api, namespace: str) -> None:
    def owner(uid: str) -> Json:
        return {"apiVersion": "example.com/v1", "kind": "Thing", "name": uid, "uid": uid}

    body = config_map("a", ownerReferences=[owner("one")], finalizers=["example.com/hold"])
    (await api.create(maps(namespace), body)).ok(201)
    patch: Json = {"metadata": {"ownerReferences": [owner("two")]}}
    made = (await api.patch(maps(namespace, "a"), patch, "strategic")).ok(200)
    assert {entry["uid"] for entry in made["metadata"]["ownerReferences"]} == {"one", "two"}
    patch = {"metadata": {"ownerReferences": [{"uid": "one", "$patch": "delete"}]}}
    made = (await api.patch(maps(namespace, "a"), patch, "strategic")).ok(200)
    assert [entry["uid"] for entry in made["metadata"]["ownerReferences"]] == ["two"]
    (await api.patch(maps(namespace, "a"), {"metadata": {"finalizers": None}})).ok(200)


async def test_an_unknown_strategic_directive_is_refused(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a", {"a": "1"}))).ok(201)
    answer = await api.patch(maps(namespace, "a"), {"data": {"$patch": "explode"}}, "strategic")
    assert answer.status in {400, 500}, answer.body


async def test_concurrent_patches_of_different_keys_all_arrive(api: Api, namespace: str) -> None:
    import asyncio

    (await api.create(maps(namespace), config_map("a"))).ok(201)
    patches = (api.patch(maps(namespace, "a"), {"data": {f"k{n}": "v"}}) for n in range(5))
    for answer in await asyncio.gather(*patches):
        answer.ok(200)

    async def has_all() -> Any:
        return len((await api.get(maps(namespace, "a"))).ok(200).get("data", {})) == 5

    await eventually(has_all)


async def test_a_patch_that_names_another_uid_changes_nothing(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a", {"a": "1"}))).ok(201)
    patch: Json = {"metadata": {"uid": "12345"}, "data": {"a": "2"}}
    refused = (await api.patch(maps(namespace, "a"), patch)).refused(422, "Invalid")
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["metadata.uid"]
    assert (await api.get(maps(namespace, "a"))).ok(200)["data"] == {"a": "1"}
    patch["metadata"]["uid"] = made["metadata"]["uid"]
    assert (await api.patch(maps(namespace, "a"), patch)).ok(200)["data"] == {"a": "2"}
