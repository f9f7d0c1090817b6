"""Pruning, defaulting and validation; messages were taken from a 1.20 API server.

Two differences are deliberate: newer servers give the index of a list item in the path
(`spec.lo[0].n`), and an empty text is no longer called "null".
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.schemas.builtin import definitions
from devcluster.schemas.schema import Schema
from devcluster.status import join_errors

_ITEM = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"type": "string"}, "c": {"type": "integer", "default": 7}},
}
_FREE = {"x-kubernetes-preserve-unknown-fields": True}
_SPEC = {
    "size": {"type": "integer", "minimum": 1, "maximum": 64},
    "f": {"type": "number"},
    "b": {"type": "boolean"},
    "s": {"type": "string"},
    "e": {"type": "string", "enum": ["a", "b"]},
    "ei": {"type": "integer", "enum": [1, 2]},
    "d": {"type": "string", "format": "date-time"},
    "ios": {"x-kubernetes-int-or-string": True},
    "l": {"type": "array", "items": {"type": "string"}},
    "lo": {"type": "array", "items": _ITEM},
    "m": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    },
    "anything": {"type": "object", "additionalProperties": True},
    "free": {
        "type": "object",
        **_FREE,
        "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
    },
    "nul": {"type": "string", "nullable": True},
    "nuld": {"type": "string", "nullable": True, "default": "dd"},
    "def": {
        "type": "object",
        "default": {"type": "Never"},
        "properties": {"type": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
    },
    "sd": {"type": "string", "default": "x"},
    "nod": {"type": "object", "properties": {"z": {"type": "integer", "default": 9}}},
}
_SCHEMA = Schema(
    {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": _SPEC},
            "status": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
    },
    definitions(),
)
_DEFAULTS = {"def": {"limit": 3, "type": "Never"}, "nuld": "dd", "sd": "x"}


def _object(spec, **top):
    return {"apiVersion": "x.io/v1", "kind": "T", "metadata": {"name": "a"}, "spec": spec, **top}


def _admitted(spec):
    """Return the object as a server admits it: pruned, with defaults, then judged."""
    obj = _object({"size": 2, **copy.deepcopy(spec)})
    unknown = _SCHEMA.prune(obj)
    _SCHEMA.default(obj)
    return obj["spec"], unknown, [str(error) for error in _SCHEMA.validate(obj)]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"size": 0}, "spec.size in body should be greater than or equal to 1"),
        ({"size": 66}, "spec.size in body should be less than or equal to 64"),
        ({"size": "2"}, 'spec.size in body must be of type integer: "string"'),
        ({"size": True}, 'spec.size in body must be of type integer: "boolean"'),
        ({"f": "x"}, 'spec.f in body must be of type number: "string"'),
        ({"b": "true"}, 'spec.b in body must be of type boolean: "string"'),
        ({"b": 1}, 'spec.b in body must be of type boolean: "integer"'),
        ({"s": 5}, 'spec.s in body must be of type string: "integer"'),
        ({"d": "x"}, 'spec.d in body must be of type date-time: "x"'),
        ({"ios": 1.5}, 'spec.ios in body must be of type integer,string: "number"'),
        ({"ios": {}}, 'spec.ios in body must be of type integer,string: "object"'),
        ({"l": "x"}, 'spec.l in body must be of type array: "string"'),
        ({"l": [1]}, 'spec.l[0] in body must be of type string: "integer"'),
        ({"l": [None]}, 'spec.l[0] in body must be of type string: "null"'),
        ({"m": {"a": "x"}}, 'spec.m.a in body must be of type integer: "string"'),
        ({"nul": 1}, 'spec.nul in body must be of type string: "integer"'),
        ({"def": {"type": 1}}, 'spec.def.type in body must be of type string: "integer"'),
    ],
)
def test_a_broken_rule_is_one_invalid_value_in_the_servers_words(spec, want):
    _, _, errors = _admitted(spec)
    assert len(errors) == 1
    assert errors[0].endswith(want)
    assert ": Invalid value: " in errors[0]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or "),
        ({"size": "2"}, 'spec.size: Invalid value: "string": spec.size in body must be of type'),
        ({"size": None}, "spec.size: Required value"),
        ({"e": "c"}, 'spec.e: Unsupported value: "c": supported values: "a", "b"'),
        ({"ei": 3}, 'spec.ei: Unsupported value: 3: supported values: "1", "2"'),
        ({"lo": [{}]}, "spec.lo[0].n: Required value"),
    ],
)
def test_the_first_fault_names_field_kind_and_value(spec, want):
    assert _admitted(spec)[2][0].startswith(want)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"size": 2.0},
        {"f": 0.5},
        {"d": "2020-01-01T00:00:00Z"},
        {"ios": 1},
        {"ios": "a"},
        {"ios": None},
        {"anything": {"a": {"b": [1, None]}}},
        {"nul": None},
    ],
)
def test_a_good_spec_has_no_faults(spec):
    assert _admitted(spec)[2] == []


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, {}),
        ({"lo": [{"n": "a"}]}, {"lo": [{"n": "a", "c": 7}]}),
        ({"nuld": None}, {"nuld": None}),
        ({"def": {}}, {"def": {"limit": 3}}),
        ({"def": {"type": "Z"}}, {"def": {"type": "Z", "limit": 3}}),
        ({"def": None}, {}),
        ({"sd": None}, {}),
        ({"nod": {}}, {"nod": {"z": 9}}),
        ({"nul": None}, {"nul": None}),
        ({"e": None}, {}),
    ],
)
def test_nulls_fall_away_before_defaults_are_filled_in(spec, want):
    assert _admitted(spec)[0] == {"size": 2, **_DEFAULTS, **want}


def test_a_default_is_never_shared_between_objects():
    first, second = _object({}), _object({})
    _SCHEMA.default(first)
    first["spec"]["def"]["type"] = "Changed"
    _SCHEMA.default(second)
    assert second["spec"]["def"]["type"] == "Never"


def test_unknown_fields_are_removed_and_named_by_path():
    obj = _object(
        {
            "size": 2,
            "unknown": 1,
            "lo": [{"n": "a", "zz": 3}],
            "free": {"q": 1, "known": {"a": "x", "b": 1}},
        },
        bogus=1,
    )
    obj["metadata"]["nme"] = "x"
    unknown = _SCHEMA.prune(obj)
    assert sorted(unknown) == [
        "bogus",
        "metadata.nme",
        "spec.free.known.b",
        "spec.lo[0].zz",
        "spec.unknown",
    ]
    assert obj["spec"] == {
        "size": 2,
        "lo": [{"n": "a"}],
        "free": {"q": 1, "known": {"a": "x"}},
    }


def test_metadata_is_checked_although_the_schema_does_not_name_it():
    obj = _object({"size": 2})
    obj["metadata"]["labels"] = {"a": 1}
    assert [error.field for error in _SCHEMA.validate(obj)] == ["metadata.labels.a"]


def test_several_faults_stand_in_brackets_and_one_alone():
    errors = _SCHEMA.validate(_object({"size": 0, "e": "z"}))
    assert join_errors(errors[:1]).startswith("spec.size: Invalid value")
    assert join_errors(errors).startswith("[spec.size: Invalid value")
    assert errors[1].as_cause() == {
        "reason": "FieldValueNotSupported",
        "field": "spec.e",
        "message": 'Unsupported value: "z": supported values: "a", "b"',
    }


def test_a_missing_spec_is_required():
    obj = _object({})
    del obj["spec"]
    assert [str(error) for error in _SCHEMA.validate(obj)] == ["spec: Required value"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(_SPEC)), _JSON, max_size=4))
def test_whatever_comes_is_judged_without_an_exception_and_pruning_is_idempotent(spec):
    obj = _object(spec)
    _SCHEMA.prune(obj)
    _SCHEMA.default(obj)
    before = copy.deepcopy(obj)
    _SCHEMA.default(obj)
    assert _SCHEMA.prune(obj) == []
    assert obj == before
    _SCHEMA.validate(obj)
