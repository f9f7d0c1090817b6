"""ConfigMaps, Secrets, volumes, and the other kinds that are only stored."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually, unique
from tests.devcluster.conformance.kinds import config_map, maps

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

MIB = 1024 * 1024
BAD_MAPS: dict[str, tuple[Json, str]] = {
    "key-slash": ({"data": {"a/b": "c"}}, "data[a/b]"),
    "key-empty": ({"data": {"": "c"}}, "data[]"),
    "key-dots": ({"data": {"..": "c"}}, "data[..]"),
    "key-long": ({"data": {"x" * 254: "c"}}, "data["),
    "both": ({"data": {"a": "b"}, "binaryData": {"a": "Yg=="}}, "data[a]"),
    "big": ({"data": {"a": "x" * (MIB + 1)}}, ""),
    "big-together": ({"data": {"a": "x" * MIB}, "binaryData": {"b": "YWE="}}, ""),
}


@pytest.mark.parametrize("row", BAD_MAPS)
async def test_a_bad_config_map_is_422(api: Api, namespace: str, row: str) -> None:
    body, field = BAD_MAPS[row]
    answer = await api.create(maps(namespace), {**config_map("a"), **body})
    status = answer.refused(422, "Invalid")
    causes = status["details"]["causes"]
    assert causes[0]["field"].startswith(field)
    if row.startswith("big"):
        assert causes[0]["reason"] == "FieldValueTooLong"
        assert "Too long: " in causes[0]["message"]
        assert str(MIB) in causes[0]["message"]


async def test_a_config_map_of_exactly_one_mebibyte_is_stored(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a", {"a": "x" * MIB}))).ok(201)


async def test_binary_data_must_be_base64(api: Api, namespace: str) -> None:
    body = {**config_map("a"), "binaryData": {"a": "not base64!"}}
    (await api.create(maps(namespace), body)).refused(400, "BadRequest")


@pytest.mark.parametrize("kind", ["configmaps", "secrets"])
async def test_immutable_data_cannot_change_again(api: Api, namespace: str, kind: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/{kind}"
    value = {"configmaps": "v", "secrets": "dg=="}[kind]
    body = {
        "apiVersion": "v1",
        "kind": {"configmaps": "ConfigMap", "secrets": "Secret"}[kind],
        "metadata": {"name": "a"},
        "data": {"k": value},
        "immutable": True,
    }
    (await api.create(path, body)).ok(201)
    status = (await api.patch(f"{path}/a", {"data": {"l": value}})).refused(422, "Invalid")
    assert "data: Forbidden: field is immutable when `immutable` is set" in status["message"]
    status = (await api.patch(f"{path}/a", {"immutable": False})).refused(422, "Invalid")
    assert "immutable: Forbidden: field is immutable when `immutable` is set" in status["message"]
    (await api.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}})).ok(200)
    (await api.delete(f"{path}/a")).ok(200)


async def test_string_data_of_a_secret_is_encoded_and_wins(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        "data": {"a": "b2xk", "b": "b2xk"},
        "stringData": {"a": "new"},
    }
    made = (await api.create(path, body)).ok(201)
    assert made["type"] == "Opaque"
    assert "stringData" not in made
    plain = {key: base64.b64decode(value) for key, value in made["data"].items()}
    assert plain == {"a": b"new", "b": b"old"}
    changed = (await api.patch(f"{path}/a", {"stringData": {"c": "more"}})).ok(200)
    assert set(changed["data"]) == {"a", "b", "c"}


BAD_SECRETS: dict[str, tuple[Json, int, str]] = {
    "tls-without-key": ({"type": "kubernetes.io/tls", "data": {}}, 422, "data[tls.crt]"),
    "docker-without-config": (
        {"type": "kubernetes.io/dockerconfigjson", "data": {}},
        422,
        "data[.dockerconfigjson]",
    ),
    "key": ({"data": {"a/b": "YQ=="}}, 422, "data[a/b]"),
    "not-base64": ({"data": {"a": "%%%"}}, 400, ""),
}


@pytest.mark.parametrize("row", BAD_SECRETS)
async def test_a_bad_secret_is_refused(api: Api, namespace: str, row: str) -> None:
    more, code, field = BAD_SECRETS[row]
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, **more}
    answer = await api.create(f"/api/v1/namespaces/{namespace}/secrets", body)
    assert answer.status == code, answer.body
    assert field in answer.body["message"]


async def test_the_type_of_a_secret_cannot_change(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    (await api.create(path, body)).ok(201)
    status = (await api.patch(f"{path}/a", {"type": "example.com/x"})).refused(422, "Invalid")
    assert "type: Invalid value" in status["message"]
    assert "field is immutable" in status["message"]


def claim(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "by-hand",
            "resources": {"requests": {"storage": "5Gi"}},
            **spec,
        },
    }


async def test_a_claim_is_stored_with_its_defaults(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    made = (await api.create(path, claim("a"))).ok(201)
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    (await api.patch(f"{path}/a", {"metadata": {"finalizers": None}})).ok(200)


async def test_a_volume_is_stored_with_its_defaults(api: Api) -> None:
    name = unique("volume")
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteMany"],
            "nfs": {"server": "nfs.example.com", "path": "/data"},
            "storageClassName": "by-hand",
        },
    }
    path = "/api/v1/persistentvolumes"
    made = (await api.create(path, body)).ok(201)
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["spec"]["nfs"] == {"server": "nfs.example.com", "path": "/data"}
    (await api.delete(f"{path}/{name}")).ok(200)
    await api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})


async def test_an_account_is_stored(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    body = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "own"},
        "imagePullSecrets": [{"name": "pull"}],
    }
    assert (await api.create(path, body)).ok(201)["imagePullSecrets"] == [{"name": "pull"}]


@pytest.mark.full_cluster
async def test_a_new_namespace_gets_its_account_and_root_certificate(
    api: Api, namespace: str
) -> None:
    async def has(kind: str, name: str) -> bool:
        return (await api.get(f"/api/v1/namespaces/{namespace}/{kind}/{name}")).status == 200

    await eventually(lambda: has("serviceaccounts", "default"))
    await eventually(lambda: has("configmaps", "kube-root-ca.crt"))
    roots = (await api.get(maps(namespace, "kube-root-ca.crt"))).ok(200)
    assert "BEGIN CERTIFICATE" in roots["data"]["ca.crt"]


def test_kubectl_makes_maps_and_secrets_from_literals(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-n", namespace, "configmap", "a", "--from-literal=k=v")
    assert kubectl.json("get", "-n", namespace, "cm", "a")["data"] == {"k": "v"}
    kubectl.run("create", "-n", namespace, "secret", "generic", "b", "--from-literal=k=v")
    assert kubectl.json("get", "-n", namespace, "secret", "b")["data"] == {"k": "dg=="}
    output = kubectl.run("describe", "-n", namespace, "cm", "a")
    assert "k:\n----\nv" in output


def test_kubectl_labels_annotates_and_edits(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-n", namespace, "configmap", "a", "--from-literal=k=v")
    kubectl.run("label", "-n", namespace, "cm", "a", "x=y")
    kubectl.run("annotate", "-n", namespace, "cm", "a", "note=here")
    kubectl.run("patch", "-n", namespace, "cm", "a", "-p", '{"data":{"k":"w"}}')
    made = kubectl.json("get", "-n", namespace, "cm", "a")
    assert made["metadata"]["labels"] == {"x": "y"}
    assert made["metadata"]["annotations"] == {"note": "here"}
    assert made["data"] == {"k": "w"}
    kubectl.run("label", "-n", namespace, "cm", "a", "x-")
    assert "labels" not in kubectl.json("get", "-n", namespace, "cm", "a")["metadata"]


def test_kubectl_applies_three_way(kubectl: Kubectl, namespace: str) -> None:
    def apply(data: Json) -> str:
        return kubectl.run("apply", "-n", namespace, "-f", "-", stdin=config_map("a", data))

    assert apply({"a": "1", "b": "2"}) == "configmap/a created\n"
    kubectl.run("patch", "-n", namespace, "cm", "a", "-p", '{"data":{"other":"kept"}}')
    assert apply({"a": "9"}) == "configmap/a configured\n"
    made = kubectl.json("get", "-n", namespace, "cm", "a")
    assert made["data"] == {"a": "9", "other": "kept"}
    assert apply({"a": "9"}) == "configmap/a unchanged\n"


def test_kubectl_diffs_against_the_server(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("apply", "-n", namespace, "-f", "-", stdin=config_map("a", {"k": "old"}))
    done = kubectl.call("diff", "-n", namespace, "-f", "-", stdin=config_map("a", {"k": "new"}))
    assert done.returncode == 1
    assert "-  k: old" in done.stdout
    assert "+  k: new" in done.stdout
