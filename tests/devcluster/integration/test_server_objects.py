"""Create, read, update and delete as a client sees them."""

from __future__ import annotations

import asyncio
from typing import Any

CMS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "busybox:1"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def owner_of(body: dict[str, Any], *, block: bool = False) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": block}
    metadata = body["metadata"]
    return {**reference, "name": metadata["name"], "uid": metadata["uid"]}


async def test_a_created_object_has_uid_times_and_a_growing_resource_version(http):
    first = await http.make(CMS, config_map("a"))
    second = await http.make(CMS, config_map("b"))
    assert first["kind"] == "ConfigMap"
    assert first["metadata"]["namespace"] == "default"
    assert first["metadata"]["creationTimestamp"].endswith("Z")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    versions = [int(body["metadata"]["resourceVersion"]) for body in (first, second)]
    assert versions[1] > versions[0]


async def test_a_taken_name_is_a_conflict_and_generate_name_finds_a_free_one(http):
    await http.make(CMS, config_map("a"))
    again = await http.call("POST", CMS, config_map("a"))
    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "a" already exists'
    names = {
        (await http.make(CMS, {"metadata": {"generateName": "g-"}}))["metadata"]["name"]
        for _ in range(5)
    }
    assert len(names) == 5
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


async def test_bad_names_and_labels_are_refused_with_the_field(http):
    answer = await http.call("POST", CMS, config_map("Bad_Name", labels={"a": "-"}))
    assert answer.status == 422
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    assert fields == {"metadata.name", "metadata.labels"}


async def test_an_update_with_a_stale_version_or_another_uid_is_a_conflict(http):
    old = await http.make(CMS, config_map("a"))
    assert (await http.patch(f"{CMS}/a", {"data": {"b": "2"}})).status == 200
    stale = await http.call("PUT", f"{CMS}/a", old)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in stale.body["message"]
    other = config_map("a", uid="another")
    assert (await http.call("PUT", f"{CMS}/a", other)).status == 409
    patched = await http.patch(f"{CMS}/a", {"metadata": {"resourceVersion": "1"}})
    assert patched.status == 409


async def test_an_update_that_changes_nothing_writes_nothing(http):
    before = await http.make(CMS, config_map("a"))
    after = await http.patch(f"{CMS}/a", {"data": {"a": "1"}})
    assert after.body == before


async def test_what_belongs_to_the_server_survives_an_update(http):
    before = (await http.make(CMS, config_map("a")))["metadata"]
    moment = "2001-01-01T00:00:00Z"
    body = config_map("a", creationTimestamp=moment, deletionTimestamp=moment)
    after = (await http.call("PUT", f"{CMS}/a", body)).body["metadata"]
    assert {**after, "resourceVersion": ""} == {**before, "resourceVersion": ""}


async def test_a_dry_run_judges_but_stores_nothing(http):
    answer = await http.call("POST", f"{CMS}?dryRun=All", config_map("a"))
    assert answer.status == 201
    assert (await http.get(f"{CMS}/a")).status == 404
    bad = await http.call("POST", f"{CMS}?dryRun=All", config_map("A"))
    assert bad.status == 422


async def test_deleting_with_another_uid_or_version_is_a_conflict(http):
    body = await http.make(CMS, config_map("a"))
    wrong = await http.delete(f"{CMS}/a", preconditions={"uid": "x"})
    assert wrong.status == 409
    wrong = await http.delete(f"{CMS}/a", preconditions={"resourceVersion": "1"})
    assert wrong.status == 409
    right = await http.delete(f"{CMS}/a", preconditions={"uid": body["metadata"]["uid"]})
    assert right.body["status"] == "Success"
    assert (await http.get(f"{CMS}/a")).status == 404


async def test_finalizers_keep_a_deleted_object_until_the_last_is_removed(http):
    await http.make(CMS, config_map("a", finalizers=["example.com/x", "example.com/y"]))
    await http.delete(f"{CMS}/a")
    body = (await http.get(f"{CMS}/a")).body
    assert body["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/x", "example.com/z"]}}
    refused = await http.patch(f"{CMS}/a", more)
    assert refused.status == 422
    assert "no new finalizers can be added" in refused.body["message"]
    await http.patch(f"{CMS}/a", {"metadata": {"finalizers": ["example.com/y"]}})
    assert (await http.get(f"{CMS}/a")).status == 200
    await http.patch(f"{CMS}/a", {"metadata": {"finalizers": None}})
    assert (await http.get(f"{CMS}/a")).status == 404


async def test_an_unbound_pod_goes_at_once_and_a_bound_one_when_the_kubelet_says_so(http):
    await http.make(PODS, pod("free"))
    await http.make(PODS, pod("bound"))
    binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}}
    assert (await http.call("POST", f"{PODS}/bound/binding", binding)).status == 201
    assert (await http.call("POST", f"{PODS}/bound/binding", binding)).status == 409
    await http.delete(f"{PODS}/free")
    assert (await http.get(f"{PODS}/free")).status == 404
    await http.delete(f"{PODS}/bound")
    metadata = (await http.get(f"{PODS}/bound")).body["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    await http.delete(f"{PODS}/bound", gracePeriodSeconds=5)
    metadata = (await http.get(f"{PODS}/bound")).body["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 5
    await http.delete(f"{PODS}/bound", gracePeriodSeconds=0)
    assert (await http.get(f"{PODS}/bound")).status == 404


async def test_a_new_pod_has_the_servers_defaults(http):
    body = await http.make(PODS, pod("a"))
    assert body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = body["spec"]
    assert spec["serviceAccountName"] == "default"
    assert spec["restartPolicy"] == "Always"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert {t["key"].rpartition("/")[2] for t in spec["tolerations"]} == {
        "not-ready",
        "unreachable",
    }


async def test_a_pod_needs_its_service_account_and_containers(http):
    answer = await http.call("POST", PODS, pod("a", serviceAccountName="nobody"))
    assert answer.status == 403
    assert 'serviceaccount "nobody" not found' in answer.body["message"]
    answer = await http.call("POST", PODS, pod("a", containers=[]))
    assert answer.status == 422
    assert answer.body["details"]["causes"][0]["field"] == "spec.containers"


async def test_a_pods_spec_is_fixed_but_for_image_and_deadline(http):
    await http.make(PODS, pod("a"))
    refused = await http.patch(f"{PODS}/a", {"spec": {"hostname": "x"}})
    assert refused.status == 422
    assert "pod updates may not change fields" in refused.body["message"]
    allowed = await http.patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 5}})
    assert allowed.status == 200
    assert (await http.patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 6}})).status == 422


async def test_a_pods_status_changes_only_through_its_own_path(http):
    await http.make(PODS, pod("a"))
    await http.patch(f"{PODS}/a", {"status": {"phase": "Running"}})
    assert (await http.get(f"{PODS}/a")).body["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}}
    await http.patch(f"{PODS}/a/status", patch)
    body = (await http.get(f"{PODS}/a")).body
    assert body["status"]["phase"] == "Running"
    assert "nodeName" not in body["spec"]


async def test_the_log_is_the_annotation_or_a_line_per_state(http):
    body = pod("a")
    await http.make(PODS, body)
    waiting = await http.get(f"{PODS}/a/log")
    assert waiting.status == 400
    assert "is waiting to start" in waiting.body["message"]
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z"}
    state = {"terminated": {"exitCode": 3, **times}}
    status = {"containerStatuses": [{"name": "main", "state": state}]}
    await http.patch(f"{PODS}/a/status", {"status": status})
    assert (await http.get(f"{PODS}/a/log")).body == (
        b"2026-01-01T00:00:00Z main: started\n2026-01-01T00:00:09Z main: ended with exit code 3\n"
    )
    await http.patch(f"{PODS}/a", {"metadata": {"annotations": {"sim/log": "one\ntwo"}}})
    assert (await http.get(f"{PODS}/a/log?tailLines=1")).body == b"two\n"
    stamped = (await http.get(f"{PODS}/a/log?timestamps=true")).body
    assert stamped == b"2026-01-01T00:00:00.000000000Z one\n2026-01-01T00:00:00.000001000Z two\n"
    assert (await http.get(f"{PODS}/a/log?sinceTime=2026-01-01T00:00:01Z")).body == b""
    previous = await http.get(f"{PODS}/a/log?previous=true")
    assert previous.status == 400
    assert 'previous terminated container "main" in pod "a" not found' in previous.body["message"]
    assert (await http.get(f"{PODS}/a/log?sinceTime=x")).status == 400


async def test_background_deletion_takes_the_dependents_afterwards(http):
    owner = await http.make(CMS, config_map("owner"))
    await http.make(CMS, config_map("child", ownerReferences=[owner_of(owner)]))
    await http.delete(f"{CMS}/owner", propagationPolicy="Background")
    assert (await http.get(f"{CMS}/owner")).status == 404
    await http.until_gone(f"{CMS}/child")


async def test_foreground_deletion_takes_the_blocking_dependents_first(http):
    owner = await http.make(CMS, config_map("owner"))
    references = [owner_of(owner, block=True)]
    held = config_map("child", ownerReferences=references, finalizers=["example.com/x"])
    await http.make(CMS, held)
    await http.delete(f"{CMS}/owner", propagationPolicy="Foreground")
    while "deletionTimestamp" not in (await http.get(f"{CMS}/child")).body["metadata"]:
        await asyncio.sleep(0.01)
    waiting = (await http.get(f"{CMS}/owner")).body["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    await http.patch(f"{CMS}/child", {"metadata": {"finalizers": None}})
    await http.until_gone(f"{CMS}/owner")


async def test_orphaning_leaves_the_dependents_without_the_reference(http):
    owner = await http.make(CMS, config_map("owner"))
    await http.make(CMS, config_map("child", ownerReferences=[owner_of(owner)]))
    await http.delete(f"{CMS}/owner", propagationPolicy="Orphan")
    await http.until_gone(f"{CMS}/owner")
    child = (await http.get(f"{CMS}/child")).body
    assert "ownerReferences" not in child["metadata"]


async def test_an_owner_that_never_existed_is_an_owner_that_is_gone(http):
    owner = await http.make(CMS, config_map("owner"))
    reference = {**owner_of(owner), "uid": "never-existed"}
    await http.make(CMS, config_map("child", ownerReferences=[reference]))
    await http.until_gone(f"{CMS}/child")


async def test_one_living_owner_keeps_a_dependent(http):
    first, second = [await http.make(CMS, config_map(name)) for name in ("one", "two")]
    references = [owner_of(first), owner_of(second)]
    await http.make(CMS, config_map("child", ownerReferences=references))
    await http.delete(f"{CMS}/one")
    while len((await http.get(f"{CMS}/child")).body["metadata"]["ownerReferences"]) > 1:
        await asyncio.sleep(0.01)
    await http.delete(f"{CMS}/two")
    await http.until_gone(f"{CMS}/child")


async def test_a_namespace_goes_with_its_contents_and_takes_nothing_new_meanwhile(http):
    await http.make("/api/v1/namespaces", {"metadata": {"name": "team"}})
    maps = "/api/v1/namespaces/team/configmaps"
    await http.make(maps, config_map("a", finalizers=["example.com/x"]))
    await http.delete("/api/v1/namespaces/team")
    refused = await http.call("POST", maps, config_map("b"))
    assert refused.status == 403
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    body = (await http.get("/api/v1/namespaces/team")).body
    assert body["status"]["phase"] == "Terminating"
    await http.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
    await http.until_gone("/api/v1/namespaces/team")
    assert (await http.get(f"{maps}/a")).status == 404


async def test_a_namespace_is_born_with_an_account_and_the_ca(http):
    await http.make("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        while (await http.get(f"/api/v1/namespaces/team/{path}")).status != 200:
            await asyncio.sleep(0.01)


async def test_a_missing_or_protected_namespace_is_refused(http):
    answer = await http.call("POST", "/api/v1/namespaces/no/configmaps", config_map("a"))
    assert (answer.status, answer.body["message"]) == (404, 'namespaces "no" not found')
    answer = await http.delete("/api/v1/namespaces/kube-system")
    assert answer.status == 403


async def test_a_collection_is_deleted_by_selector(http):
    await http.make(CMS, config_map("a", labels={"x": "1"}))
    await http.make(CMS, config_map("b", labels={"x": "2"}))
    answer = await http.call("DELETE", f"{CMS}?labelSelector=x%3D1")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]
    assert (await http.get(f"{CMS}/b")).status == 200


async def test_a_body_that_cannot_be_read_says_what_can(http):
    answer = await http.call("POST", CMS, b"k8s\x00\x00", "application/vnd.kubernetes.protobuf")
    assert answer.status == 415
    assert "application/json" in answer.body["message"]
    assert (await http.call("POST", CMS, b"{", "application/json")).status == 400
    assert (await http.call("POST", CMS, b"[]", "application/json")).status == 400
    large = config_map("a")
    large["data"]["a"] = "x" * (4 * 1024 * 1024)
    assert (await http.call("POST", CMS, large)).status == 413


async def test_a_claim_goes_when_the_last_pod_that_mounts_it_has_gone(http):
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    pods = "/api/v1/namespaces/default/pods"
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}
    await http.make(claims, {**claim, "spec": spec})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    container = {"name": "main", "image": "example.com/main:1"}
    await http.make(pods, {**pod, "spec": {"containers": [container], "volumes": [volume]}})
    assert (await http.delete(f"{claims}/c")).body["metadata"]["deletionTimestamp"]
    assert (await http.get(f"{claims}/c")).status == 200
    await http.delete(f"{pods}/p")
    await http.until_gone(f"{claims}/c")
