"""Create, get, update, delete: status codes and Status bodies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import connect_as, unique
from tests.devcluster.conformance.kinds import CRDS, config_map, maps, pods, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.servers import Server

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")


async def test_a_created_object_gets_uid_version_and_time(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a", {"k": "v"}))).ok(201)
    metadata = made["metadata"]
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    assert UUID.match(metadata["uid"])
    assert TIME.match(metadata["creationTimestamp"])
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["namespace"] == namespace
    assert (await api.get(maps(namespace, "a"))).ok(200) == made


async def test_uid_and_time_given_by_the_client_are_replaced(api: Api, namespace: str) -> None:
    body = config_map("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z")
    made = (await api.create(maps(namespace), body)).ok(201)["metadata"]
    assert UUID.match(made["uid"])
    assert made["creationTimestamp"] > "2020"


async def test_a_create_with_a_resource_version_is_refused(api: Api, namespace: str) -> None:
    answer = await api.create(maps(namespace), config_map("a", resourceVersion="5"))
    # A real server lets its storage's error through, as a 500 without a reason.
    assert answer.status in {400, 500}
    assert "resourceVersion should not be set on objects to be created" in answer.body["message"]


async def test_a_second_create_of_the_same_name_is_409(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    status = (await api.create(maps(namespace), config_map("a"))).refused(409, "AlreadyExists")
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_missing_object_is_404(api: Api, namespace: str) -> None:
    status = (await api.get(maps(namespace, "nope"))).refused(404, "NotFound")
    assert status["message"] == 'configmaps "nope" not found'
    assert status["details"] == {"name": "nope", "kind": "configmaps"}


async def test_the_details_of_a_custom_object_name_its_group(
    api: Api, namespace: str, widgets: str
) -> None:
    answer = await api.get(widgets_path(widgets, namespace, "nope"))
    status = answer.refused(404, "NotFound")
    assert status["message"] == f'widgets.{widgets} "nope" not found'
    assert status["details"] == {"name": "nope", "group": widgets, "kind": "widgets"}


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nonsense", "/apis/nowhere.example.com/v1/things", "/api/v2/pods", "/nonsense"],
)
async def test_an_unknown_path_is_404(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert answer.status == 404


async def test_an_unknown_resource_says_so_in_a_status(api: Api) -> None:
    status = (await api.get("/api/v1/namespaces/default/nonsense")).refused(404, "NotFound")
    assert status["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize("verb", ["create", "replace", "patch", "delete"])
async def test_writes_to_missing_objects_are_404(api: Api, namespace: str, verb: str) -> None:
    path = maps(namespace, "nope")
    if verb == "create":
        path = maps(unique("missing"))
    calls: dict[str, Any] = {
        "create": lambda: api.create(path, config_map("a")),
        "patch": lambda: api.patch(path, {"data": {"a": "b"}}),
        "delete": lambda: api.delete(path),
        "replace": lambda: api.replace(
            "/api/v1/namespaces/default/pods/nope/status",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nope"}},
        ),
    }
    (await calls[verb]()).refused(404, "NotFound")


async def test_an_update_of_a_missing_config_map_is_404(api: Api, namespace: str) -> None:
    answer = await api.replace(maps(namespace, "fresh"), config_map("fresh"))
    answer.refused(404, "NotFound")


@pytest.mark.parametrize(
    ("group", "plural", "kind"),
    [
        ("coordination.k8s.io", "leases", "Lease"),
        ("rbac.authorization.k8s.io", "roles", "Role"),
    ],
    ids=["leases", "roles"],
)
async def test_an_update_of_a_missing_lease_or_role_creates_it(
    api: Api, namespace: str, group: str, plural: str, kind: str
) -> None:
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "fresh"}}
    path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}/fresh"
    made = (await api.replace(path, body)).ok(201)
    assert UUID.match(made["metadata"]["uid"])


async def test_a_post_to_an_object_is_405(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    answer = await api.create(maps(namespace, "a"), config_map("a"))
    status = answer.refused(405, "MethodNotAllowed")
    assert status["message"] == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_write_to_a_collection_is_405(api: Api, namespace: str, method: str) -> None:
    answer = await api.call(
        method, maps(namespace), {}, content_type="application/merge-patch+json"
    )
    answer.refused(405, "MethodNotAllowed")


async def test_a_stale_update_is_409(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    (await api.patch(maps(namespace, "a"), {"data": {"k": "1"}})).ok(200)
    made["data"] = {"k": "2"}
    status = (await api.replace(maps(namespace, "a"), made)).refused(409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert status["details"] == {"name": "a", "kind": "configmaps"}
    assert (await api.get(maps(namespace, "a"))).body["data"] == {"k": "1"}


async def test_an_update_without_a_version_overwrites_a_config_map(
    api: Api, namespace: str
) -> None:
    made = (await api.create(maps(namespace), config_map("a", {"k": "1"}))).ok(201)
    new = (await api.replace(maps(namespace, "a"), config_map("a", {"k": "2"}))).ok(200)
    assert new["data"] == {"k": "2"}
    assert new["metadata"]["uid"] == made["metadata"]["uid"]
    assert new["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_an_update_without_a_version_of_a_custom_object_is_422(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a", count=1))).ok(201)
    body = widget(widgets, "a", count=2)
    answer = await api.replace(widgets_path(widgets, namespace, "a"), body)
    status = answer.refused(422, "Invalid")
    assert status["message"] == (
        f'widgets.{widgets} "a" is invalid: metadata.resourceVersion: '
        "Invalid value: 0: must be specified for an update"
    )


async def test_an_update_that_changes_nothing_keeps_the_version(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a", {"k": "1"}))).ok(201)
    same = (await api.replace(maps(namespace, "a"), made)).ok(200)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_with_another_uid_is_409(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    body = config_map("a", {"k": "2"}, uid="00000000-0000-0000-0000-000000000000")
    status = (await api.replace(maps(namespace, "a"), body)).refused(409, "Conflict")
    assert "Precondition failed: UID in precondition" in status["message"]
    assert made["metadata"]["uid"] in status["message"]


async def test_the_name_in_the_body_must_be_that_of_the_path(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    answer = await api.replace(maps(namespace, "a"), config_map("b"))
    status = answer.refused(400, "BadRequest")
    assert status["message"] == (
        "the name of the object (b) does not match the name on the URL (a)"
    )


async def test_the_namespace_in_the_body_must_be_that_of_the_path(api: Api, namespace: str) -> None:
    answer = await api.create(maps(namespace), config_map("a", namespace="elsewhere"))
    status = answer.refused(400, "BadRequest")
    assert "the namespace of the provided object does not match" in status["message"]


async def test_a_body_of_another_kind_is_400(api: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    status = (await api.create(maps(namespace), body)).refused(400, "BadRequest")
    assert "ConfigMap" in status["message"]


async def test_a_custom_body_of_another_version_is_400(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a") | {"apiVersion": f"{widgets}/v9"}
    (await api.create(widgets_path(widgets, namespace), body)).refused(400, "BadRequest")


@pytest.mark.parametrize("body", ["{not json", "[]", '"text"', "{"])
async def test_a_body_that_is_no_object_is_400(api: Api, namespace: str, body: str) -> None:
    (await api.create(maps(namespace), body)).refused(400, "BadRequest")


async def test_an_unknown_content_type_is_415(api: Api, namespace: str) -> None:
    answer = await api.call("POST", maps(namespace), "a=b", content_type="text/csv")
    status = answer.refused(415, "UnsupportedMediaType")
    assert "application/json" in status["message"]


async def test_an_unknown_patch_type_is_415(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    answer = await api.call("PATCH", maps(namespace, "a"), {}, content_type="application/json")
    answer.refused(415, "UnsupportedMediaType")


async def test_an_answer_in_an_unknown_form_is_406(api: Api) -> None:
    answer = await api.call("GET", "/api/v1/namespaces", headers={"Accept": "text/csv"})
    assert answer.status == 406


async def test_yaml_bodies_are_read(api: Api, namespace: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
    answer = await api.call("POST", maps(namespace), text, content_type="application/yaml")
    assert answer.ok(201)["data"] == {"k": "v"}


async def test_a_dry_run_changes_nothing(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"), dryRun="All")).ok(201)
    assert UUID.match(made["metadata"]["uid"])
    (await api.get(maps(namespace, "a"))).refused(404, "NotFound")
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    (await api.patch(maps(namespace, "a"), {"data": {"k": "v"}}, dryRun="All")).ok(200)
    assert "data" not in (await api.get(maps(namespace, "a"))).ok(200)
    (await api.delete(maps(namespace, "a"), dryRun="All")).ok(200)
    (await api.get(maps(namespace, "a"))).ok(200)


async def test_a_wrong_dry_run_is_refused(api: Api, namespace: str) -> None:
    answer = await api.create(maps(namespace), config_map("a"), dryRun="yes")
    assert answer.status in {400, 422}
    assert "dryRun" in answer.body["message"]


async def test_a_wrong_type_in_a_builtin_object_is_400(api: Api, namespace: str) -> None:
    body = {**config_map("a"), "data": {"k": 5}}
    status = (await api.create(maps(namespace), body)).refused(400, "BadRequest")
    assert "ConfigMap" in status["message"]


async def test_nobody_without_credentials_may_read(server: Server) -> None:
    async with connect_as(server.kubeconfig, "") as nobody:
        answer = await nobody.get("/api/v1/namespaces/default/pods")
    assert answer.status in {401, 403}, "401 where anonymous requests are off"
    assert answer.body["reason"] in {"Unauthorized", "Forbidden"}


async def test_a_wrong_token_is_401(server: Server) -> None:
    async with connect_as(server.kubeconfig, "wrong") as stranger:
        status = (await stranger.get("/api/v1/namespaces")).refused(401, "Unauthorized")
    assert status["message"] == "Unauthorized"


async def test_the_health_page_needs_no_credentials(server: Server) -> None:
    async with connect_as(server.kubeconfig, "") as nobody:
        for path in ("/healthz", "/readyz", "/livez"):
            assert (await nobody.get(path)).body == "ok"


async def test_a_collection_is_deleted_by_label(api: Api, namespace: str) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        body = config_map(name, labels={"color": color})
        (await api.create(maps(namespace), body)).ok(201)
    answer = (await api.delete(maps(namespace), labelSelector="color=red")).ok(200)
    assert answer["kind"] == "ConfigMapList"
    left = (await api.get(maps(namespace), labelSelector="color")).ok(200)["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


async def test_a_delete_answers_with_a_success_status(api: Api, namespace: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    status = (await api.delete(maps(namespace, "a"))).ok(200)
    assert status["kind"] == "Status"
    assert status["status"] == "Success"
    assert status["details"] == {
        "name": "a",
        "kind": "configmaps",
        "uid": made["metadata"]["uid"],
    }


async def test_a_list_has_kind_and_items_without_kinds(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("listed"))).ok(201)
    found = (await api.get(maps(namespace))).ok(200)
    assert found["kind"] == "ConfigMapList"
    item = next(item for item in found["items"] if item["metadata"]["name"] == "listed")
    assert "kind" not in item
    assert "apiVersion" not in item
    assert found["metadata"]["resourceVersion"] >= item["metadata"]["resourceVersion"]


async def test_an_empty_list_has_an_items_array(api: Api, namespace: str) -> None:
    found = (await api.get(pods(namespace))).ok(200)
    assert found["kind"] == "PodList"
    assert found["items"] == []


async def test_a_custom_list_keeps_the_kinds_of_its_items(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    found = (await api.get(widgets_path(widgets, namespace))).ok(200)
    assert found["kind"] == "WidgetList"
    assert found["apiVersion"] == f"{widgets}/v1"
    assert found["items"][0]["kind"] == "Widget"


async def test_a_crd_cannot_be_asked_for_in_a_namespace(api: Api, namespace: str) -> None:
    path = CRDS.replace("/v1/", f"/v1/namespaces/{namespace}/")
    assert (await api.get(path)).status == 404
