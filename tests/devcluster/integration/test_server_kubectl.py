"""The real kubectl against the embedded API, command by command."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from tests.fakes.waiting import eventually

MOMENT = "2026-01-01T00:00:00Z"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: "busybox:1", env: [{name: A, value: "1"}]}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: toys, kind: Toy, singular: toy, listKind: ToyList, shortNames: [ty]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What the toy is like.
            properties:
              size: {type: integer, description: How large it is.}
              replicas: {type: integer}
          status: {type: object, properties: {replicas: {type: integer}, done: {type: boolean}}}
"""
TOY = """
apiVersion: example.com/v1
kind: Toy
metadata: {name: bear}
spec: {size: 3, replicas: 1}
"""


async def read(kubectl: Any, *arguments: str) -> Any:
    return json.loads(await kubectl("get", *arguments, "-o", "json"))


async def test_apply_creates_changes_and_leaves_alone(kubectl):
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/web created\n"
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/web unchanged\n"
    newer = POD.replace("busybox:1", "busybox:2")
    assert await kubectl("apply", "-f", "-", stdin=newer) == "pod/web configured\n"
    body = await read(kubectl, "pod", "web")
    assert body["spec"]["containers"][0]["image"] == "busybox:2"
    assert body["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_apply_refuses_an_unknown_field_by_its_path(kubectl):
    await kubectl("apply", "-f", "-", stdin=CRD)
    ran = await kubectl.run("apply", "-f", "-", stdin=TOY.replace("size", "sice"))
    assert ran.code == 1
    assert 'unknown field "spec.sice"' in ran.err
    ran = await kubectl.run("apply", "-f", "-", stdin=POD.replace("image", "imagee"))
    assert ran.code == 1
    assert 'unknown field "spec.containers[0].imagee"' in ran.err


async def test_get_shows_columns_of_built_in_and_custom_kinds(kubectl):
    await kubectl("apply", "-f", "-", stdin=f"{CRD}\n---\n{POD}")
    await kubectl("apply", "-f", "-", stdin=TOY)
    out = (await kubectl("get", "ty")).split("\n")
    assert out[0].split() == ["NAME", "SIZE"]
    assert out[1].split() == ["bear", "3"]
    header, row = (await kubectl("get", "pods")).splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    wide = await kubectl("get", "pods", "-A", "-o", "wide", "--show-labels")
    assert "NODE" in wide
    assert "app=web" in wide


async def test_get_selects_by_label_and_field_and_prints_yaml(kubectl):
    await kubectl("apply", "-f", "-", stdin=POD)
    assert await kubectl("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert await kubectl("get", "pods", "-l", "app!=web", "-o", "name") == ""
    picked = "metadata.name=web,status.phase=Pending"
    assert await kubectl("get", "pods", "--field-selector", picked, "-o", "name") == "pod/web\n"
    assert yaml.safe_load(await kubectl("get", "pod", "web", "-o", "yaml"))["kind"] == "Pod"


async def test_get_watches(kubectl, cluster):
    watching = await kubectl.start("get", "cm", "-w", "-o", "name")
    await eventually(lambda: cluster._watchers._open["configmaps"])
    await kubectl("create", "configmap", "late", "--from-literal=a=b")
    async with asyncio.timeout(90):
        while await watching.stdout.readline() != b"configmap/late\n":
            assert watching.returncode is None
    watching.kill()
    await watching.communicate()


async def test_label_annotate_and_the_three_patch_types(kubectl):
    await kubectl("apply", "-f", "-", stdin=POD)
    assert await kubectl("label", "pod", "web", "tier=front") == "pod/web labeled\n"
    assert await kubectl("annotate", "pod", "web", "note=said") == "pod/web annotated\n"
    strategic = {"spec": {"containers": [{"name": "main", "image": "busybox:3"}]}}
    await kubectl("patch", "pod", "web", "-p", json.dumps(strategic))
    merge = {"metadata": {"labels": {"app": None}}}
    await kubectl("patch", "pod", "web", "--type=merge", "-p", json.dumps(merge))
    operation = {"op": "add", "path": "/metadata/labels/x", "value": "y"}
    await kubectl("patch", "pod", "web", "--type=json", "-p", json.dumps([operation]))
    body = await read(kubectl, "pod", "web")
    assert body["metadata"]["labels"] == {"tier": "front", "x": "y"}
    assert body["metadata"]["annotations"]["note"] == "said"
    assert body["spec"]["containers"][0]["image"] == "busybox:3"
    assert body["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_edit_and_replace(kubectl, tmp_path):
    await kubectl("apply", "-f", "-", stdin=POD)
    kubectl.environment["EDITOR"] = "sed -i s/busybox:1/busybox:4/"
    assert "edited" in await kubectl("edit", "pod", "web")
    body = await read(kubectl, "pod", "web")
    assert body["spec"]["containers"][0]["image"] == "busybox:4"
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    config_map = await read(kubectl, "cm", "c")
    config_map["data"] = {"a": "2"}
    assert "replaced" in await kubectl("replace", "-f", "-", stdin=json.dumps(config_map))


async def test_scale_and_status_of_a_custom_resource(kubectl):
    await kubectl("apply", "-f", "-", stdin=CRD)
    await kubectl("wait", "--for=condition=Established", "crd/toys.example.com")
    await kubectl("apply", "-f", "-", stdin=TOY)
    assert await kubectl("scale", "toy", "bear", "--replicas=4") == "toy.example.com/bear scaled\n"
    patch = json.dumps({"status": {"done": True}})
    await kubectl("patch", "toy", "bear", "--subresource=status", "--type=merge", "-p", patch)
    body = await read(kubectl, "toy", "bear")
    assert (body["spec"]["replicas"], body["status"]) == (4, {"done": True})
    await kubectl("wait", "--for=jsonpath={.status.done}=true", "toy/bear", "--timeout=90s")


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_delete_waits_whatever_the_cascade(kubectl, http, cascade):
    await kubectl("create", "configmap", "owner")
    owner = (await read(kubectl, "cm", "owner"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    reference["blockOwnerDeletion"] = True
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    maps = "/api/v1/namespaces/default/configmaps"
    await http.make(maps, child)
    out = await kubectl("delete", "cm", "owner", f"--cascade={cascade}", "--timeout=90s")
    assert out.startswith('configmap "owner" deleted')
    assert (await http.get(f"{maps}/owner")).status == 404
    if cascade == "orphan":
        assert "ownerReferences" not in (await http.get(f"{maps}/child")).body["metadata"]
    else:
        await http.until_gone(f"{maps}/child")


async def test_delete_of_a_namespace_waits_for_its_contents(kubectl):
    await kubectl("create", "namespace", "team")
    await kubectl("-n", "team", "create", "configmap", "a")
    assert "deleted" in await kubectl("delete", "ns", "team", "--timeout=90s")
    ran = await kubectl.run("get", "ns", "team")
    assert 'namespaces "team" not found' in ran.err


async def test_force_deletes_a_bound_pod(kubectl, http):
    await kubectl("apply", "-f", "-", stdin=POD)
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n"}}
    await http.make("/api/v1/namespaces/default/pods/web/binding", binding)
    await kubectl("delete", "pod", "web", "--wait=false")
    assert (await read(kubectl, "pod", "web"))["metadata"]["deletionTimestamp"]
    await kubectl("delete", "pod", "web", "--force", "--grace-period=0", "--timeout=90s")
    assert (await kubectl.run("get", "pod", "web")).code == 1


async def test_describe_and_logs(kubectl, http):
    await kubectl("apply", "-f", "-", stdin=POD)
    assert "Status:           Pending" in await kubectl("describe", "pod", "web")
    assert "Name:" in await kubectl("describe", "ns", "default")
    state = {"terminated": {"exitCode": 0, "startedAt": MOMENT, "finishedAt": MOMENT}}
    status = {"containerStatuses": [{"name": "main", "state": state}]}
    path = "/api/v1/namespaces/default/pods/web/status"
    await http.patch(path, {"status": status})
    assert "ended with exit code 0" in await kubectl("logs", "web")
    assert "ended with exit code 0" in await kubectl("logs", "-f", "web")


async def test_discovery_commands(kubectl):
    await kubectl("apply", "-f", "-", stdin=CRD)
    assert "toys" in await kubectl("api-resources", "--api-group=example.com")
    assert "example.com/v1" in await kubectl("api-versions")
    assert "Server Version: v1." in await kubectl("version")
    assert "How large it is." in await kubectl("explain", "toy.spec.size")
    assert "https://127.0.0.1" in await kubectl("config", "view")
    assert "is running at" in await kubectl("cluster-info")


async def test_tokens_and_permissions(kubectl):
    token = (await kubectl("create", "token", "default", "--audience=x", "--duration=20m")).strip()
    assert token.count(".") == 2
    assert await kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    account = "--as=system:serviceaccount:default:default"
    assert (await kubectl.run("auth", "can-i", "delete", "pods", account)).out == "no\n"
    await kubectl("create", "role", "r", "--verb=delete", "--resource=pods")
    await kubectl("create", "rolebinding", "b", "--role=r", "--serviceaccount=default:default")
    assert await kubectl("auth", "can-i", "delete", "pods", account) == "yes\n"
    assert "kubernetes-admin" in await kubectl("auth", "whoami")


async def test_what_kubectl_creates_as_protobuf(kubectl):
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert (await read(kubectl, "secret", "s"))["data"] == {"a": "Yg=="}
    await kubectl("create", "serviceaccount", "robot")
    await kubectl("create", "clusterrole", "c", "--verb=get,list", "--resource=pods")
    rules = (await read(kubectl, "clusterrole", "c"))["rules"]
    assert rules[0]["verbs"] == ["get", "list"]
    await kubectl("create", "clusterrolebinding", "cb", "--clusterrole=c", "--group=g")
    bound = await read(kubectl, "clusterrolebinding", "cb")
    assert bound["subjects"][0]["name"] == "g"
    assert bound["roleRef"]["name"] == "c"


async def test_a_dry_run_on_the_server_stores_nothing(kubectl):
    out = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=POD)
    assert out == "pod/web created (server dry run)\n"
    assert (await kubectl.run("get", "pod", "web")).code == 1
