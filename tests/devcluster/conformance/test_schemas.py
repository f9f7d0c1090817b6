"""Custom objects: validation messages, defaulting, pruning, generation, status and scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.kinds import widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json

# (spec, field, reasons a release may give, message of the cause)
INVALID = "FieldValueInvalid"
WRONG_TYPE = "FieldValueTypeInvalid"
REFUSALS: dict[str, tuple[Json, str, str, str]] = {
    "integer-as-text": (
        {"count": "3"},
        "spec.count",
        WRONG_TYPE,
        'Invalid value: "string": spec.count in body must be of type integer: "string"',
    ),
    "text-as-integer": (
        {"code": 3},
        "spec.code",
        WRONG_TYPE,
        'Invalid value: "integer": spec.code in body must be of type string: "integer"',
    ),
    "boolean-as-text": (
        {"enabled": "yes"},
        "spec.enabled",
        WRONG_TYPE,
        'Invalid value: "string": spec.enabled in body must be of type boolean: "string"',
    ),
    "array-as-text": (
        {"tags": "one"},
        "spec.tags",
        WRONG_TYPE,
        'Invalid value: "string": spec.tags in body must be of type array: "string"',
    ),
    "object-as-text": (
        {"nested": "one"},
        "spec.nested",
        WRONG_TYPE,
        'Invalid value: "string": spec.nested in body must be of type object: "string"',
    ),
    "enum": (
        {"color": "pink"},
        "spec.color",
        "FieldValueNotSupported",
        'Unsupported value: "pink": supported values: "red", "green", "blue"',
    ),
    "maximum": (
        {"count": 11},
        "spec.count",
        INVALID,
        "Invalid value: 11: spec.count in body should be less than or equal to 10",
    ),
    "minimum": (
        {"count": -1},
        "spec.count",
        INVALID,
        "Invalid value: -1: spec.count in body should be greater than or equal to 0",
    ),
    "required": ({"nested": {}}, "spec.nested.inner", "FieldValueRequired", "Required value"),
    "required-in-item": (
        {"items": [{"name": "a"}, {"port": 1}]},
        "spec.items[1].name",
        "FieldValueRequired",
        "Required value",
    ),
    "wrong-type-in-item": (
        {"tags": ["a", 1]},
        "spec.tags[1]",
        WRONG_TYPE,
        'Invalid value: "integer": spec.tags[1] in body must be of type string: "integer"',
    ),
    "nested-maximum": (
        {"nested": {"inner": "a", "size": 5}},
        "spec.nested.size",
        INVALID,
        "Invalid value: 5: spec.nested.size in body should be less than or equal to 4",
    ),
    "map-value": (
        {"numbers": {"one": "x"}},
        "spec.numbers.one",
        WRONG_TYPE,
        'Invalid value: "string": spec.numbers.one in body must be of type integer: "string"',
    ),
    "date-time": (
        {"when": "yesterday"},
        "spec.when",
        WRONG_TYPE,
        'Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday"',
    ),
    "int-or-string-as-boolean": (
        {"size": True},
        "spec.size",
        WRONG_TYPE,
        'Invalid value: "boolean": spec.size in body must be of type integer,string: "boolean"',
    ),
}

# What other releases say: 1.20 names no list index and knows fewer reasons; 1.31 counts bytes.
OTHER_WORDS: dict[str, set[tuple[str, str, str]]] = {
    "required-in-item": {("spec.items.name", "FieldValueRequired", "Required value")},
    "wrong-type-in-item": {
        (
            "spec.tags",
            INVALID,
            'Invalid value: "integer": spec.tags in body must be of type string: "integer"',
        ),
    },
}


@pytest.mark.parametrize("row", REFUSALS)
async def test_a_spec_against_its_schema_is_422_in_these_words(
    api: Api, namespace: str, widgets: str, row: str
) -> None:
    spec, *words = REFUSALS[row]
    answer = await api.create(widgets_path(widgets, namespace), widget(widgets, "a", **spec))
    status = answer.refused(422, "Invalid")
    causes = status["details"]["causes"]
    assert len(causes) == 1
    field, reason, message = (causes[0][key] for key in ("field", "reason", "message"))
    allowed = {tuple(words), *OTHER_WORDS.get(row, ())}
    assert (field, reason, message) in allowed
    assert status["message"] == f'Widget.{widgets} "a" is invalid: {field}: {message}'
    assert status["details"]["group"] == widgets
    assert status["details"]["kind"] == "Widget"


async def test_two_mistakes_are_two_causes_in_one_list(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", count=11, color="pink")
    answer = await api.create(widgets_path(widgets, namespace), body)
    status = answer.refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.count", "spec.color"}
    assert status["message"].startswith(f'Widget.{widgets} "a" is invalid: [spec.')
    assert status["message"].endswith("]")


async def test_defaults_are_filled_in_and_stored(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    body = widget(widgets, "a", nested={"inner": "x"}, items=[{"name": "a"}])
    made = (await api.create(path, body)).ok(201)["spec"]
    assert made == {
        "color": "red",
        "enabled": True,
        "filled": "filled",
        "maybeFilled": "filled",
        "nested": {"inner": "x", "level": 3},
        "items": [{"name": "a", "port": 80}],
    }
    assert (await api.get(widgets_path(widgets, namespace, "a"))).body["spec"] == made


async def test_no_defaults_below_an_object_that_is_absent(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a")
    del body["spec"]
    made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)
    assert "spec" not in made


async def test_null_is_kept_where_nullable_and_else_replaced_by_the_default(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", maybe=None, maybeFilled=None, filled=None, code=None)
    made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)["spec"]
    assert made["maybe"] is None
    assert made["maybeFilled"] is None
    assert made["filled"] == "filled"
    assert made.get("code") is None


async def test_unknown_fields_are_pruned(api: Api, namespace: str, widgets: str) -> None:
    body = widget(widgets, "a", count=1, colour="red", nested={"inner": "x", "outer": 1})
    body["extra"] = {"a": 1}
    made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)
    assert "extra" not in made
    assert "colour" not in made["spec"]
    assert made["spec"]["nested"] == {"inner": "x", "level": 3}


async def test_unknown_fields_stay_where_the_schema_preserves_them(
    api: Api, namespace: str, widgets: str
) -> None:
    free = {"a": [1, {"b": "c"}], "d": None}
    body = widget(widgets, "a", anything=free)
    made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)["spec"]
    assert made["anything"] == free


@pytest.mark.parametrize("size", [5, "5", "50%"])
async def test_int_or_string_keeps_either(
    api: Api, namespace: str, widgets: str, size: Any
) -> None:
    body = widget(widgets, "a", size=size)
    made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)
    assert made["spec"]["size"] == size


async def test_an_integer_may_be_written_as_a_whole_float(
    api: Api, namespace: str, widgets: str
) -> None:
    body = '{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"count":3.0}}'
    made = (await api.create(widgets_path(widgets, namespace), body % widgets)).ok(201)
    assert made["spec"]["count"] == 3


async def test_a_bad_update_leaves_the_object_alone(api: Api, namespace: str, widgets: str) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a", count=1))).ok(201)
    path = widgets_path(widgets, namespace, "a")
    (await api.patch(path, {"spec": {"count": 99}})).refused(422, "Invalid")
    assert (await api.get(path)).body["spec"]["count"] == 1
