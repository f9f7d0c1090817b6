"""Schemas and merge keys of the built-in kinds."""

from __future__ import annotations

import pytest

from devcluster.schemas import builtin
from devcluster.schemas.kinds import KINDS
from devcluster.storage.patch import STRATEGIC_PATCH, apply_patch

_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}, "ownerReferences": []},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"limits": {"cpu": "500m", "memory": 1024}},
                "livenessProbe": {"httpGet": {"port": "http"}, "exec": {"command": ["x"]}},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
    },
    "status": {"containerStatuses": [{"name": "c"}]},
}


@pytest.mark.parametrize("table", [builtin.MERGE_KEYS, builtin.QUANTITIES, builtin.INT_OR_STRING])
def test_every_hand_kept_rule_is_about_a_field_that_exists(table):
    known = builtin.definitions()
    missing = [
        rule
        for rule in table
        if rule.partition(".")[2] not in known.get(rule.partition(".")[0], {}).get("properties", {})
    ]
    assert missing == []


def test_every_reference_is_to_a_type_of_the_table():
    known = builtin.definitions()
    referred = set()
    for definition in known.values():
        for field in definition["properties"].values():
            inner = field
            while "items" in inner or "additionalProperties" in inner:
                inner = inner.get("items") or inner["additionalProperties"]
            referred.add(inner.get("$ref", "Pod"))
    assert referred <= known.keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.api_version}/{kind.kind}")
def test_every_served_kind_has_a_schema_with_metadata(kind):
    schema = builtin.schema_of(kind.api_version, kind.kind)
    assert schema is not None
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}}
    assert schema.prune({**obj, "bogus": 1}) == ["bogus"]


def test_a_good_pod_has_no_faults():
    schema = builtin.schema_of("v1", "Pod")
    assert schema is not None
    assert schema.prune(_POD) == []
    assert schema.validate({**_POD, "status": {}}) == []


def test_unknown_fields_of_a_pod_are_named_by_path():
    schema = builtin.schema_of("v1", "Pod")
    assert schema is not None
    pod = {
        "metadata": {"nme": "x"},
        "spec": {"containers": [{"name": "c", "imagePullPolcy": "Always"}], "nodName": "n"},
    }
    assert sorted(schema.prune(pod)) == [
        "metadata.nme",
        "spec.containers[0].imagePullPolcy",
        "spec.nodName",
    ]


def test_the_schema_inside_a_crd_is_known_and_its_free_parts_are_kept():
    schema = builtin.schema_of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert schema is not None
    inner = {
        "type": "object",
        "properties": {"$ref": {"type": "string", "typ": "x"}},
        "additionalProperties": {"anything": True},
        "default": {"a": {"b": None}},
    }
    crd = {"spec": {"versions": [{"schema": {"openAPIV3Schema": inner}}]}}
    path = "spec.versions[0].schema.openAPIV3Schema.properties.$ref.typ"
    assert schema.prune(crd) == [path]
    schema.default(crd)
    assert inner["default"] == {"a": {"b": None}}


def test_an_empty_map_is_never_kept_but_an_empty_list_or_struct_is():
    schema = builtin.schema_of("v1", "Pod")
    assert schema is not None
    pod = {
        "metadata": {"labels": {}, "annotations": {"a": "b"}, "finalizers": []},
        "spec": {"containers": [], "nodeSelector": {}, "volumes": [{"name": "v", "emptyDir": {}}]},
    }
    schema.default(pod)
    assert pod == {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]},
    }


@pytest.mark.parametrize(
    ("kind", "obj", "want"),
    [
        (
            ("v1", "Pod"),
            {"spec": {"hostNetwork": 1}},
            "json: cannot unmarshal number into Go struct field Pod.spec.hostNetwork of type bool",
        ),
        (
            ("v1", "ConfigMap"),
            {"data": {"a": True}},
            "json: cannot unmarshal bool into Go struct field ConfigMap.data.a of type string",
        ),
        (
            ("v1", "Secret"),
            {"data": {"a": "not base64!"}},
            "json: cannot unmarshal string into Go struct field Secret.data.a of type byte",
        ),
    ],
)
def test_the_first_field_of_a_wrong_type_is_named(kind, obj, want):
    schema = builtin.schema_of(*kind)
    assert schema is not None
    assert builtin.decode_error(kind[1], schema.validate(obj)) == want


def test_a_malformed_quantity_is_a_fault_of_its_field():
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "much"}}}]}}
    schema = builtin.schema_of("v1", "Pod")
    assert schema is not None
    errors = schema.validate(pod)
    assert [error.field for error in errors] == ["spec.containers[0].resources.limits.cpu"]
    assert "quantities must match the regular expression" in errors[0].message


def test_merge_keys_go_by_the_path_in_the_kind():
    pod = builtin.merge_keys("v1", "Pod")
    assert pod["spec.containers"] == pod["spec.volumes"] == "name"
    assert pod["spec.containers.ports"] == "containerPort"
    assert pod["metadata.finalizers"] == ""
    assert "spec.tolerations" not in pod
    assert builtin.merge_keys("v1", "Node")["status.conditions"] == "type"
    assert builtin.merge_keys("x.io/v1", "Nothing") == {}


def test_a_strategic_patch_of_a_pods_status_merges_conditions_by_type():
    pod = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = apply_patch(pod, patch, STRATEGIC_PATCH, builtin.merge_keys("v1", "Pod"))
    assert patched["status"]["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "Other"},
    ]
