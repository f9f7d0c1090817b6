"""OpenAPI documents: published as a 1.20 API server does, v3 as kubectl reads it."""

from __future__ import annotations

import json
import re

import pytest

from devcluster.schemas.kinds import KINDS, STATUS_VERBS, Kind, Subresource
from devcluster.schemas.openapi import component_name, v2_document, v3_document, v3_index

_CUSTOM = Kind(
    "x.io", "v1", "ts", "t", "T", subresources=(Subresource("status", "T", STATUS_VERBS),)
)
_SPEC = {
    "type": "object",
    "description": "What to do.",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "def": {"type": "object", "default": {"type": "Never"}},
        "all": {"type": "integer", "allOf": [{"minimum": 3}]},
        "iosp": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+$",
            "x-kubernetes-int-or-string": True,
        },
        "nul": {"type": "string", "nullable": True},
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "string"}},
        },
        "lo": {"type": "array", "items": {"type": "integer", "default": 7}},
        "m": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
    },
}
_SCHEMA = {"type": "object", "description": "A test.", "properties": {"spec": _SPEC}}
_SCHEMAS = {("x.io/v1", "T"): _SCHEMA}
_ALL = [*KINDS, _CUSTOM]
_IDENTITY = "x-kubernetes-group-version-kind"


def _v3(path):
    document = v3_document(path, _ALL, _SCHEMAS)
    assert document is not None
    return document


@pytest.mark.parametrize(
    ("api_version", "kind", "want"),
    [
        ("v1", "Pod", "io.k8s.api.core.v1.Pod"),
        ("v1", "Event", "io.k8s.api.core.v1.Event"),
        ("events.k8s.io/v1", "Event", "io.k8s.api.events.v1.Event"),
        ("rbac.authorization.k8s.io/v1", "Role", "io.k8s.api.rbac.v1.Role"),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        ),
    ],
)
def test_built_in_kinds_have_their_published_names(api_version, kind, want):
    found = next(k for k in KINDS if (k.api_version, k.kind) == (api_version, kind))
    assert component_name(found) == want


def test_a_custom_kind_has_its_group_reversed():
    assert component_name(_CUSTOM) == "io.x.v1.T"


@pytest.mark.parametrize(
    "name",
    [
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
        "io.k8s.api.core.v1.PodSpec",
        "io.k8s.api.core.v1.PodTemplateSpec",
        "io.k8s.api.apps.v1.DeploymentSpec",
        "io.k8s.api.core.v1.PodList",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        "io.x.v1.TList",
    ],
)
def test_the_v2_document_defines_what_a_real_server_defines(name):
    assert name in v2_document(_ALL, _SCHEMAS)["definitions"]


@pytest.mark.parametrize("group_version", ["v2", "api/v1", "apis/apps/v1", "apis/x.io/v1"])
def test_every_reference_of_a_document_resolves_in_it(group_version):
    document = v2_document(_ALL, _SCHEMAS) if group_version == "v2" else _v3(group_version)
    prefix = "#/definitions/" if group_version == "v2" else "#/components/schemas/"
    known = document.get("definitions") or document["components"]["schemas"]
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)))
    assert references
    assert {reference.removeprefix(prefix) for reference in references} <= known.keys()


def test_each_kind_is_found_by_group_version_and_kind():
    definitions = v2_document(_ALL, _SCHEMAS)["definitions"].values()
    found = [
        (item["group"], item["version"], item["kind"])
        for definition in definitions
        for item in definition.get(_IDENTITY, [])
    ]
    assert len(found) == len(set(found))
    assert {(kind.group, kind.version, kind.kind) for kind in _ALL} <= set(found)
    assert ("x.io", "v1", "TList") in found


def test_lists_that_merge_say_so():
    spec = v2_document(_ALL, {})["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"] == {
        "type": "array",
        "items": {"$ref": "#/definitions/io.k8s.api.core.v1.Container"},
        "x-kubernetes-patch-merge-key": "name",
        "x-kubernetes-patch-strategy": "merge",
    }
    assert spec["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert "x-kubernetes-patch-strategy" not in spec["tolerations"]


def test_the_fields_that_are_texts_or_numbers_are_published_as_the_server_does():
    definitions = v2_document(_ALL, {})["definitions"]
    port = definitions["io.k8s.api.core.v1.ServicePort"]["properties"]["targetPort"]
    limits = definitions["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"]
    assert port == {"type": "string", "format": "int-or-string"}
    assert limits == {"type": "object", "additionalProperties": {"type": "string"}}


def test_a_custom_kind_loses_in_v2_what_swagger_cannot_say():
    definition = v2_document(_ALL, _SCHEMAS)["definitions"]["io.x.v1.T"]
    assert definition["properties"]["spec"]["properties"] == {
        "size": {"type": "integer", "minimum": 1},
        "def": {"type": "object"},
        "all": {"type": "integer"},
        "iosp": {"pattern": "^[0-9]+$", "x-kubernetes-int-or-string": True},
        "nul": {},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "lo": {"type": "array", "items": {"type": "integer"}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    metadata = definition["properties"]["metadata"]
    assert metadata["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert definition[_IDENTITY] == [{"group": "x.io", "kind": "T", "version": "v1"}]


def test_a_custom_kind_that_keeps_everything_is_published_without_a_shape():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    document = v2_document([_CUSTOM], {("x.io/v1", "T"): schema})
    assert document["definitions"]["io.x.v1.T"] == {
        "x-kubernetes-preserve-unknown-fields": True,
        _IDENTITY: [{"group": "x.io", "kind": "T", "version": "v1"}],
    }


def test_a_custom_kind_keeps_descriptions_and_rules_in_v3():
    schema = _v3("apis/x.io/v1")["components"]["schemas"]["io.x.v1.T"]
    assert schema["description"] == "A test."
    assert schema["properties"]["spec"] == _SPEC
    assert schema["properties"]["metadata"]["allOf"][0]["$ref"].endswith("v1.ObjectMeta")
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec"}


@pytest.mark.parametrize("kind", [k for k in _ALL if k.is_stored], ids=lambda k: k.resource_name)
def test_kubectl_finds_field_validation_on_the_patch_of_every_stored_kind(kind):
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    paths = _v3(base[1:])["paths"]
    patch = paths[f"{base}{scope}/{kind.plural}/{{name}}"]["patch"]
    assert "fieldValidation" in [item["name"] for item in patch["parameters"]]
    assert patch[_IDENTITY] == {"group": kind.group, "version": kind.version, "kind": kind.kind}
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_only_what_a_kind_can_do_has_an_operation():
    paths = _v3("apis/authentication.k8s.io/v1")["paths"]
    assert {path: list(operations) for path, operations in paths.items()} == {
        "/apis/authentication.k8s.io/v1/selfsubjectreviews": ["post"],
        "/apis/authentication.k8s.io/v1/tokenreviews": ["post"],
    }


def test_the_status_has_its_own_path():
    paths = v2_document(_ALL, _SCHEMAS)["paths"]
    assert list(paths["/apis/x.io/v1/namespaces/{namespace}/ts/{name}/status"]) == [
        "get",
        "put",
        "patch",
    ]
    body = paths["/apis/x.io/v1/namespaces/{namespace}/ts"]["post"]["parameters"][-1]
    assert body["schema"] == {"$ref": "#/definitions/io.x.v1.T"}


def test_an_unknown_group_version_has_no_document():
    assert v3_document("apis/nope/v1", _ALL, _SCHEMAS) is None


def test_the_index_has_one_address_per_group_version_that_changes_with_a_schema():
    before = v3_index(_ALL, _SCHEMAS)["paths"]
    after = v3_index(_ALL, {("x.io/v1", "T"): {**_SCHEMA, "description": "Changed."}})["paths"]
    assert before["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")
    changed = [path for path in before if before[path] != after[path]]
    assert changed == ["apis/x.io/v1"]
