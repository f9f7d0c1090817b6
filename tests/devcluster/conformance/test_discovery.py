"""Discovery: the documents from which clients learn what is served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

CORE = "/api/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALL = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
# document, plural, kind, namespaced, short names
RESOURCES: list[tuple[str, str, str, bool, list[str]]] = [
    (CORE, "pods", "Pod", True, ["po"]),
    (CORE, "configmaps", "ConfigMap", True, ["cm"]),
    (CORE, "secrets", "Secret", True, []),
    (CORE, "serviceaccounts", "ServiceAccount", True, ["sa"]),
    (CORE, "events", "Event", True, ["ev"]),
    (CORE, "nodes", "Node", False, ["no"]),
    (CORE, "persistentvolumes", "PersistentVolume", False, ["pv"]),
    (CORE, "persistentvolumeclaims", "PersistentVolumeClaim", True, ["pvc"]),
    ("/apis/coordination.k8s.io/v1", "leases", "Lease", True, []),
    (RBAC, "roles", "Role", True, []),
    (RBAC, "rolebindings", "RoleBinding", True, []),
    (RBAC, "clusterroles", "ClusterRole", False, []),
    (RBAC, "clusterrolebindings", "ClusterRoleBinding", False, []),
    (
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        ["crd", "crds"],
    ),
]
SUBRESOURCES: list[tuple[str, str, str, set[str]]] = [
    (CORE, "pods/status", "Pod", {"get", "patch", "update"}),
    (CORE, "pods/log", "Pod", {"get"}),
    (CORE, "pods/binding", "Binding", {"create"}),
    (CORE, "nodes/status", "Node", {"get", "patch", "update"}),
    (CORE, "namespaces/finalize", "Namespace", {"update"}),
    (CORE, "serviceaccounts/token", "TokenRequest", {"create"}),
    ("/apis/authentication.k8s.io/v1", "tokenreviews", "TokenReview", {"create"}),
    ("/apis/authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", {"create"}),
]


async def resources_of(api: Api, document: str) -> dict[str, Json]:
    found = (await api.get(document)).ok(200)
    assert found["kind"] == "APIResourceList"
    assert found["groupVersion"] == document.removeprefix("/apis/").removeprefix("/api/")
    return {entry["name"]: entry for entry in found["resources"]}


@pytest.mark.parametrize("row", RESOURCES, ids=lambda row: row[1])
async def test_a_resource_is_declared(api: Api, row: tuple[str, str, str, bool, list[str]]) -> None:
    document, plural, kind, namespaced, short = row
    entry = (await resources_of(api, document))[plural]
    assert entry["kind"] == kind
    assert entry["namespaced"] is namespaced
    assert entry.get("shortNames", []) == short
    # Services can be deleted as a collection only since 1.23.
    assert set(entry["verbs"]) | {"deletecollection"} == ALL


@pytest.mark.parametrize("row", SUBRESOURCES, ids=lambda row: row[1].replace("/", "-"))
async def test_a_subresource_is_declared(api: Api, row: tuple[str, str, str, set[str]]) -> None:
    document, name, kind, verbs = row
    entry = (await resources_of(api, document))[name]
    assert entry["kind"] == kind
    assert set(entry["verbs"]) == verbs


async def test_a_subresource_of_another_group_names_it(api: Api) -> None:
    entry = (await resources_of(api, CORE))["serviceaccounts/token"]
    assert entry["group"] == "authentication.k8s.io"
    assert entry["version"] == "v1"


async def test_namespaces_cannot_be_deleted_as_a_collection(api: Api) -> None:
    entry = (await resources_of(api, CORE))["namespaces"]
    assert set(entry["verbs"]) == ALL - {"deletecollection"}


async def test_pods_are_in_the_category_all(api: Api) -> None:
    assert "all" in (await resources_of(api, CORE))["pods"]["categories"]


async def test_the_core_versions(api: Api) -> None:
    found = (await api.get("/api")).ok(200)
    assert found["kind"] == "APIVersions"
    assert found["versions"] == ["v1"]


@pytest.mark.parametrize(
    "group",
    [
        "apiextensions.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "coordination.k8s.io",
        "rbac.authorization.k8s.io",
    ],
)
async def test_a_group_is_listed_and_has_its_own_document(api: Api, group: str) -> None:
    found = (await api.get("/apis")).ok(200)
    assert found["kind"] == "APIGroupList"
    entry = next(entry for entry in found["groups"] if entry["name"] == group)
    wanted = {"groupVersion": f"{group}/v1", "version": "v1"}
    assert wanted in entry["versions"]
    assert entry["preferredVersion"] == wanted
    own = (await api.get(f"/apis/{group}")).ok(200)
    assert own["kind"] == "APIGroup"
    assert own["apiVersion"] == "v1"
    assert own["name"] == group
    assert own["preferredVersion"] == wanted


async def test_a_custom_resource_is_declared_with_its_subresources(api: Api, widgets: str) -> None:
    found = await resources_of(api, f"/apis/{widgets}/v1")
    assert found["widgets"]["kind"] == "Widget"
    assert found["widgets"]["singularName"] == "widget"
    assert set(found["widgets"]["verbs"]) == ALL
    assert set(found["widgets/status"]["verbs"]) == {"get", "patch", "update"}
    assert found["widgets/scale"]["kind"] == "Scale"
    assert found["widgets/scale"]["group"] == "autoscaling"
    assert found["widgets/scale"]["version"] == "v1"


async def test_the_version_page_names_a_release(api: Api) -> None:
    found = (await api.get("/version")).ok(200)
    assert re.match(r"^v\d+\.\d+\.\d+", found["gitVersion"])
    assert found["major"] == "1"
    assert re.match(r"^\d+\+?$", found["minor"])


@pytest.mark.parametrize("path", ["/apis/nowhere.example.com", "/apis/nowhere.example.com/v1"])
async def test_an_unknown_group_is_404(api: Api, path: str) -> None:
    assert (await api.get(path)).status == 404


@pytest.mark.parametrize("short", ["po", "cm", "no", "ns", "sa", "crd", "ev"])
def test_kubectl_knows_the_short_names(kubectl: Kubectl, short: str) -> None:
    kubectl.run("get", short, "-n", "default", "-o", "name")


def test_kubectl_lists_resources_and_versions(kubectl: Kubectl, widgets: str) -> None:
    lines = [line.split() for line in kubectl.run("api-resources", "--no-headers").splitlines()]
    by_name = {line[0]: line for line in lines if line[-1] in {"Widget", "Pod", "Lease"}}
    assert by_name["pods"] == ["pods", "po", "v1", "true", "Pod"]
    assert by_name["leases"] == ["leases", "coordination.k8s.io/v1", "true", "Lease"]
    assert f"{widgets}/v1" in kubectl.run("api-versions").split()


def test_kubectl_reads_the_servers_version(kubectl: Kubectl) -> None:
    found: Any = kubectl.json("version")
    assert found["serverVersion"]["gitVersion"].startswith("v1.")
