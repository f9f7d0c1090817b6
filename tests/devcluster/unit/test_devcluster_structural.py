"""Which schemas a CRD may have, and the refusals of a 1.20 API server for the others."""

from __future__ import annotations

import pytest

from devcluster.schemas.schema import structural_errors
from devcluster.status import join_errors

_ROOT = "spec.validation.openAPIV3Schema"
_SPEC = f"{_ROOT}.properties[spec]"
_TEXT = {"type": "string"}
_Q = {"q": {"type": "integer"}}
_FREE = {"x-kubernetes-preserve-unknown-fields": True}
_EMBEDDED = {"x-kubernetes-embedded-resource": True}


def _spec(schema):
    return {"type": "object", "properties": {"spec": schema}}


def _list_map(**item):
    return {
        "type": "array",
        "items": {"type": "object", "properties": {"n": _TEXT}, **item},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n"],
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", **_FREE},
        {"type": "object", "properties": {"metadata": {"type": "object"}}},
        _spec({"type": "object", "properties": {"a": _TEXT}}),
        _spec({"x-kubernetes-int-or-string": True}),
        _spec({"type": "string", "x-kubernetes-int-or-string": True}),
        _spec(
            {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            }
        ),
        _spec(_FREE),
        _spec({"type": "object", **_EMBEDDED, **_FREE}),
        _spec({"type": "object", "additionalProperties": True}),
        _spec({"type": "object", "additionalProperties": False}),
        _spec({"type": "object", "nullable": True}),
        _spec({"type": "object", "properties": {"q": {"type": "integer", "default": None}}}),
        _spec(_list_map(required=["n"])),
        _spec({"type": "object", "anyOf": [{"properties": {"q": {"minimum": 1}}}]}),
        {
            "type": "object",
            "properties": {
                "metadata": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "pattern": "a"}},
                }
            },
        },
    ],
)
def test_a_structural_schema_is_accepted(schema):
    assert structural_errors(schema) == []


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"properties": {}}, f"{_ROOT}.type: Required value: must not be empty at the root"),
        (
            {"type": "array", "items": _TEXT},
            f'{_ROOT}.type: Invalid value: "array": must be object at the root',
        ),
        (
            _spec({"properties": {"a": _TEXT}}),
            f"{_SPEC}.type: Required value: must not be empty for specified object fields",
        ),
        (_spec({"type": "array"}), f"{_SPEC}.items: Required value: must be specified"),
        (
            _spec({"type": "array", "items": {}}),
            f"{_SPEC}.items.type: Required value: must not be empty for specified array items",
        ),
        (
            _spec({"type": "array", "items": {"type": "array"}}),
            f"{_SPEC}.items.items: Required value: must be specified",
        ),
        (
            _spec({"type": "object", "anyOf": [{"type": "integer"}]}),
            f"{_SPEC}.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            _spec(
                {
                    "type": "object",
                    "properties": _Q,
                    "anyOf": [{"properties": {"q": {"default": 1}}}],
                }
            ),
            (
                f"{_SPEC}.anyOf[0].properties[q].default: Forbidden: must be undefined to be "
                "structural"
            ),
        ),
        (
            _spec({"type": "object", "anyOf": [{"description": "x"}]}),
            f"{_SPEC}.anyOf[0].description: Forbidden: must be empty to be structural",
        ),
        (
            _spec({"type": "object", "not": {"additionalProperties": _TEXT}}),
            f"{_SPEC}.not.additionalProperties: Forbidden: must be undefined to be structural",
        ),
        (
            _spec({"type": "object", "properties": _Q, "additionalProperties": _TEXT}),
            (
                f"{_SPEC}.additionalProperties: Forbidden: additionalProperties and properties are "
                "mutual exclusive"
            ),
        ),
        (
            _spec({"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
            (
                f"{_SPEC}.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true "
                "or undefined"
            ),
        ),
        (
            _spec({"type": "object", **_EMBEDDED}),
            (
                f"{_SPEC}.properties: Required value: must not be empty if "
                "x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            ),
        ),
        (
            _spec({"type": "string", **_EMBEDDED, **_FREE}),
            (
                f'{_SPEC}.type: Invalid value: "string": must be object if '
                "x-kubernetes-embedded-resource is true"
            ),
        ),
        (
            {
                "type": "object",
                "properties": {
                    "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}
                },
            },
            (
                f"{_ROOT}.properties[metadata]: Forbidden: must not specify anything other than "
                "name and generateName, but metadata is implicitly specified"
            ),
        ),
        (
            {"type": "object", "properties": {"apiVersion": {"type": "integer"}}},
            f'{_ROOT}.properties[apiVersion].type: Invalid value: "integer": must be string',
        ),
        (
            _spec({"type": "object", "default": {"z": 1}, "properties": _Q}),
            (
                f'{_SPEC}.default: Invalid value: map[string]interface {{}}{{"z":1}}: must not '
                "have unknown fields"
            ),
        ),
        (
            _spec({"type": "integer", "default": "x"}),
            (
                f'{_SPEC}.default: Invalid value: "string":  in body must be of type integer: '
                '"string"'
            ),
        ),
        (
            _spec({"type": "object", "$ref": "#/x"}),
            f"{_SPEC}.$ref: Forbidden: $ref is not supported",
        ),
        (
            _spec({"type": "object", "patternProperties": {"a": _TEXT}}),
            f"{_SPEC}.patternProperties: Forbidden: patternProperties is not supported",
        ),
        (
            _spec({"type": "array", "items": _TEXT, "uniqueItems": True}),
            (
                f"{_SPEC}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the "
                "runtime complexity becomes quadratic"
            ),
        ),
        (
            _spec({"type": "foo"}),
            (
                f'{_SPEC}.type: Unsupported value: "foo": supported values: "array", "boolean", '
                '"integer", "number", "object", "string"'
            ),
        ),
        (
            _spec(_list_map()),
            (
                f"{_SPEC}.items.properties[n].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ),
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused_with_the_reason(schema, want):
    assert join_errors(structural_errors(schema)) == want


@pytest.mark.parametrize(
    ("schema", "want_field"),
    [
        (_spec({"type": "string", "pattern": "("}), f"{_SPEC}.pattern"),
        (
            _spec({"type": "array", "items": _TEXT, "x-kubernetes-list-type": "map"}),
            f"{_SPEC}.x-kubernetes-list-map-keys",
        ),
        (
            _spec({**_list_map(), "x-kubernetes-list-map-keys": ["z"]}),
            f"{_SPEC}.x-kubernetes-list-map-keys",
        ),
        (
            {"type": "object", "properties": {"metadata": {"type": "string"}}},
            f"{_ROOT}.properties[metadata].type",
        ),
        (
            _spec({"type": "object", "additionalProperties": {"properties": {}}}),
            f"{_SPEC}.additionalProperties.type",
        ),
        (
            _spec({"type": "array", "items": _TEXT, "allOf": [{"items": {"nullable": True}}]}),
            f"{_SPEC}.allOf[0].items.nullable",
        ),
        (
            _spec({"type": "object", "oneOf": [{"not": {"anyOf": [{"title": "t"}]}}]}),
            f"{_SPEC}.oneOf[0].not.anyOf[0].title",
        ),
    ],
)
def test_the_fault_is_found_where_it_is(schema, want_field):
    assert [error.field for error in structural_errors(schema)] == [want_field]


def test_the_path_of_a_version_can_be_given():
    path = "spec.versions[1].schema.openAPIV3Schema"
    assert structural_errors({}, path)[0].field == f"{path}.type"
