"""Deletion: finalizers, preconditions, grace, and collection by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually
from tests.devcluster.conformance.kinds import config_map, maps, pod, pods

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

HOLD = ["example.com/hold"]


async def test_an_object_with_finalizers_stays_until_they_are_gone(
    api: Api, namespace: str
) -> None:
    path = maps(namespace, "a")
    (await api.create(maps(namespace), config_map("a", finalizers=HOLD))).ok(201)
    marked = (await api.delete(path)).ok(200)
    assert marked["kind"] == "ConfigMap"
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    again = (await api.delete(path)).ok(200)
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    (await api.patch(path, {"metadata": {"finalizers": []}})).ok(200)
    (await api.get(path)).refused(404, "NotFound")


@pytest.mark.parametrize(
    ("body", "params", "stays"),
    [
        (None, {"dryRun": "All"}, True),
        ({"dryRun": ["All"]}, {}, True),
        ({"propagationPolicy": "Background"}, {"dryRun": "All"}, False),
    ],
    ids=["parameter", "body", "body and parameter"],
)
async def test_a_body_of_options_takes_the_place_of_parameters(
    api: Api, namespace: str, body: Json | None, params: dict[str, str], stays: bool
) -> None:
    path = maps(namespace, "a")
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    options = body and {"apiVersion": "v1", "kind": "DeleteOptions", **body}
    (await api.delete(path, options, **params)).ok(200)
    assert ((await api.get(path)).status == 200) is stays


async def test_removing_one_of_two_finalizers_is_not_enough(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    both = ["example.com/a", "example.com/b"]
    (await api.create(maps(namespace), config_map("a", finalizers=both))).ok(201)
    (await api.delete(path)).ok(200)
    left = (await api.patch(path, {"metadata": {"finalizers": both[:1]}})).ok(200)
    assert left["metadata"]["finalizers"] == both[:1]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)
    (await api.get(path)).refused(404, "NotFound")


async def test_an_object_being_deleted_takes_no_new_finalizers(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await api.create(maps(namespace), config_map("a", finalizers=HOLD))).ok(201)
    (await api.delete(path)).ok(200)
    more = {"metadata": {"finalizers": [*HOLD, "example.com/more"]}}
    status = (await api.patch(path, more)).refused(422, "Invalid")
    assert "metadata.finalizers: Forbidden: no new finalizers can be added" in status["message"]
    assert status["details"]["causes"][0]["reason"] == "FieldValueForbidden"
    (await api.patch(path, {"data": {"still": "writable"}})).ok(200)
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)


async def test_a_client_cannot_set_or_clear_the_time_of_deletion(api: Api, namespace: str) -> None:
    path = maps(namespace, "a")
    (await api.create(maps(namespace), config_map("a", finalizers=HOLD))).ok(201)
    stamp = {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}
    answer = await api.patch(path, stamp)
    if answer.status == 200:
        assert "deletionTimestamp" not in answer.body["metadata"]
    marked = (await api.delete(path)).ok(200)
    answer = await api.patch(path, {"metadata": {"deletionTimestamp": None}})
    kept = (await api.get(path)).ok(200)
    assert kept["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)


async def test_a_new_object_cannot_be_made_under_a_name_being_deleted(
    api: Api, namespace: str
) -> None:
    path = maps(namespace, "a")
    (await api.create(maps(namespace), config_map("a", finalizers=HOLD))).ok(201)
    (await api.delete(path)).ok(200)
    status = (await api.create(maps(namespace), config_map("a"))).refused(409, "AlreadyExists")
    assert "object is being deleted" in status["message"]
    assert '"a" already exists' in status["message"]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_a_precondition_that_does_not_hold_is_409(
    api: Api, namespace: str, precondition: str
) -> None:
    path = maps(namespace, "a")
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    wrong = {"preconditions": {precondition: "12345"}}
    status = (await api.delete(path, wrong)).refused(409, "Conflict")
    what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[precondition]
    value = made["metadata"][precondition]
    sentence = (
        f"the {what} in the precondition (12345) does not match the {what} in record ({value})"
    )
    assert sentence in status["message"]
    (await api.get(path)).ok(200)
    right = {"preconditions": {precondition: made["metadata"][precondition]}}
    (await api.delete(path, right)).ok(200)
    (await api.get(path)).refused(404, "NotFound")


async def test_bad_delete_options_are_refused(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a"))).ok(201)
    wrong = {"propagationPolicy": "Explode"}
    answer = await api.delete(maps(namespace, "a"), wrong)
    assert answer.status in {400, 422}
    assert "Explode" in answer.body["message"]
    both = {"propagationPolicy": "Orphan", "orphanDependents": True}
    assert (await api.delete(maps(namespace, "a"), both)).status in {400, 422}
    (await api.get(maps(namespace, "a"))).ok(200)


async def test_a_bound_pod_is_deleted_with_grace(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), pod("a", nodeName="nowhere"))).ok(201)
    path = pods(pod_namespace, "a")
    marked = (await api.delete(path)).ok(200)
    assert marked["kind"] == "Pod"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] > marked["metadata"]["creationTimestamp"]
    shorter = (await api.delete(path, gracePeriodSeconds=5)).ok(200)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < marked["metadata"]["deletionTimestamp"]
    longer = (await api.delete(path, gracePeriodSeconds=60)).ok(200)
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    (await api.delete(path, gracePeriodSeconds=0)).ok(200)
    (await api.get(path)).refused(404, "NotFound")


async def test_the_grace_of_a_pod_comes_from_its_spec(api: Api, pod_namespace: str) -> None:
    body = pod("a", nodeName="nowhere", terminationGracePeriodSeconds=7)
    (await api.create(pods(pod_namespace), body)).ok(201)
    marked = (await api.delete(pods(pod_namespace, "a"))).ok(200)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
    (await api.delete(pods(pod_namespace, "a"), gracePeriodSeconds=0)).ok(200)


async def test_a_pod_without_a_node_is_deleted_at_once(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), pod("a", schedulerName="nobody"))).ok(201)
    (await api.delete(pods(pod_namespace, "a"))).ok(200)
    (await api.get(pods(pod_namespace, "a"))).refused(404, "NotFound")


async def test_a_finished_pod_is_deleted_at_once(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), pod("a", nodeName="nowhere"))).ok(201)
    path = pods(pod_namespace, "a")
    (await api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})).ok(200)
    (await api.delete(path)).ok(200)
    (await api.get(path)).refused(404, "NotFound")


async def test_the_last_grace_of_a_pod_with_finalizers_only_marks_it(
    api: Api, pod_namespace: str
) -> None:
    body = pod("a", nodeName="nowhere")
    body["metadata"]["finalizers"] = HOLD
    (await api.create(pods(pod_namespace), body)).ok(201)
    path = pods(pod_namespace, "a")
    marked = (await api.delete(path, gracePeriodSeconds=0)).ok(200)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)
    (await api.get(path)).refused(404, "NotFound")


def owner_reference(owner: Json, **more: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }


async def make_family(api: Api, namespace: str, **more: Any) -> None:
    """An owner, its child and its grandchild."""
    above: Json | None = None
    for name in ("owner", "child", "grandchild"):
        references = [owner_reference(above, **more)] if above else []
        body = config_map(name, ownerReferences=references)
        above = (await api.create(maps(namespace), body)).ok(201)


async def gone(api: Api, path: str) -> bool:
    return (await api.get(path)).status == 404


@pytest.mark.full_cluster
@pytest.mark.parametrize("policy", ["Background", "Foreground", "default"])
async def test_what_an_owner_owns_is_collected(api: Api, namespace: str, policy: str) -> None:
    await make_family(api, namespace, blockOwnerDeletion=True)
    options = None if policy == "default" else {"propagationPolicy": policy}
    (await api.delete(maps(namespace, "owner"), options)).ok(200)
    for name in ("owner", "child", "grandchild"):
        path = maps(namespace, name)
        await eventually(lambda path=path: gone(api, path))


@pytest.mark.full_cluster
async def test_foreground_deletion_keeps_the_owner_until_its_children_are_gone(
    api: Api, namespace: str
) -> None:
    owner = (await api.create(maps(namespace), config_map("owner"))).ok(201)
    reference = owner_reference(owner, blockOwnerDeletion=True)
    child = config_map("child", ownerReferences=[reference], finalizers=HOLD)
    (await api.create(maps(namespace), child)).ok(201)
    foreground = {"propagationPolicy": "Foreground"}
    marked = (await api.delete(maps(namespace, "owner"), foreground)).ok(200)
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert marked["metadata"]["deletionTimestamp"]

    async def child_is_marked() -> Any:
        got = (await api.get(maps(namespace, "child"))).ok(200)
        return got["metadata"].get("deletionTimestamp")

    await eventually(child_is_marked)
    (await api.get(maps(namespace, "owner"))).ok(200)
    (await api.patch(maps(namespace, "child"), {"metadata": {"finalizers": None}})).ok(200)
    await eventually(lambda: gone(api, maps(namespace, "owner")))


@pytest.mark.full_cluster
async def test_orphaned_children_stay_without_their_reference(api: Api, namespace: str) -> None:
    await make_family(api, namespace)
    (await api.delete(maps(namespace, "owner"), {"propagationPolicy": "Orphan"})).ok(200)
    await eventually(lambda: gone(api, maps(namespace, "owner")))
    child = (await api.get(maps(namespace, "child"))).ok(200)
    assert not child["metadata"].get("ownerReferences")
    grandchild = (await api.get(maps(namespace, "grandchild"))).ok(200)
    assert grandchild["metadata"]["ownerReferences"]


@pytest.mark.full_cluster
async def test_a_child_of_an_owner_that_never_was_is_collected(api: Api, namespace: str) -> None:
    nobody = {"metadata": {"name": "x", "uid": "00000000-0000-0000-0000-00000000dead"}}
    body = config_map("child", ownerReferences=[owner_reference(nobody)])
    (await api.create(maps(namespace), body)).ok(201)
    await eventually(lambda: gone(api, maps(namespace, "child")))


@pytest.mark.full_cluster
async def test_a_child_with_another_owner_stays(api: Api, namespace: str) -> None:
    one = (await api.create(maps(namespace), config_map("one"))).ok(201)
    two = (await api.create(maps(namespace), config_map("two"))).ok(201)
    body = config_map("child", ownerReferences=[owner_reference(one), owner_reference(two)])
    (await api.create(maps(namespace), body)).ok(201)
    (await api.delete(maps(namespace, "one"))).ok(200)

    async def only_two_is_left() -> Any:
        child = (await api.get(maps(namespace, "child"))).ok(200)
        return [entry["name"] for entry in child["metadata"]["ownerReferences"]] == ["two"]

    await eventually(only_two_is_left)


@pytest.mark.full_cluster
def test_kubectl_orphans_and_waits_for_foreground(kubectl: Kubectl, namespace: str) -> None:
    owner = kubectl.json("create", "-n", namespace, "-f", "-", stdin=config_map("owner"))
    child = config_map("child", ownerReferences=[owner_reference(owner)])
    kubectl.run("create", "-n", namespace, "-f", "-", stdin=child)
    kubectl.run("delete", "cm", "owner", "-n", namespace, "--cascade=orphan")
    assert kubectl.run("get", "cm", "child", "-n", namespace, "-o", "name") == "configmap/child\n"
