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
    "text-null": (
        {"code": None, "label": "x"},
        "spec.label",
        INVALID,
        'Invalid value: "x": spec.label in body should be at least 2 chars long',
    ),
    "enum": (
        {"color": "pink"},
        "spec.color",
        "FieldValueNotSupported",
        'Unsupported value: "pink": supported values: "red", "green", "blue"',
    ),
    "pattern": (
        {"code": "UP"},
        "spec.code",
        INVALID,
        "Invalid value: \"UP\": spec.code in body should match '^[a-z]+$'",
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
    "exclusive-minimum": (
        {"ratio": 0},
        "spec.ratio",
        INVALID,
        "Invalid value: 0: spec.ratio in body should be greater than 0",
    ),
    "multiple-of": (
        {"even": 3},
        "spec.even",
        INVALID,
        "Invalid value: 3: spec.even in body should be a multiple of 2",
    ),
    "min-length": (
        {"label": "x"},
        "spec.label",
        INVALID,
        'Invalid value: "x": spec.label in body should be at least 2 chars long',
    ),
    "max-length": (
        {"label": "xxxxxx"},
        "spec.label",
        "FieldValueTooLong",
        "Too long: may not be longer than 5",
    ),
    "max-items": (
        {"tags": ["a", "b", "c", "d"]},
        "spec.tags",
        "FieldValueTooMany",
        "Too many: 4: must have at most 3 items",
    ),
    "min-items": (
        {"tags": []},
        "spec.tags",
        INVALID,
        "Invalid value: 0: spec.tags in body should have at least 1 items",
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
    "max-length": {
        (
            "spec.label",
            INVALID,
            'Invalid value: "xxxxxx": spec.label in body should be at most 5 chars long',
        ),
        ("spec.label", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
    },
    "max-items": {
        (
            "spec.tags",
            INVALID,
            "Invalid value: 4: spec.tags in body should have at most 3 items",
        ),
    },
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


# field, value, the type that it must have, its own, how the second cause names the former
FRACTIONS: dict[str, tuple[str, float, str, str, str]] = {
    "formatted": ("count", 1.5, "int32", "float64", "with format int32"),
    "plain": ("replicas", 1.5, "integer", "number", "(default format)"),
}


@pytest.mark.parametrize("row", FRACTIONS)
async def test_a_fraction_for_an_integer_is_two_causes(
    api: Api, namespace: str, widgets: str, row: str
) -> None:
    name, value, wanted, found, how = FRACTIONS[row]
    path = f"spec.{name}"
    body = widget(widgets, "a", **{name: value})
    answer = await api.create(widgets_path(widgets, namespace), body)
    causes = answer.refused(422, "Invalid")["details"]["causes"]
    assert [(c["field"], c["reason"], c["message"]) for c in causes[:2]] == [
        (
            path,
            WRONG_TYPE,
            f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"',
        ),
        (
            "<nil>",
            INVALID,
            f'Invalid value: "": Checked value must be of type integer {how} in {path}',
        ),
    ]


async def test_two_mistakes_are_two_causes_in_one_list(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", count=11, code="UP")
    answer = await api.create(widgets_path(widgets, namespace), body)
    status = answer.refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.count", "spec.code"}
    assert status["message"].startswith(f'Widget.{widgets} "a" is invalid: [spec.')
    assert status["message"].endswith("]")


async def test_one_of_is_checked(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    (await api.create(path, widget(widgets, "a", either={"a": "x"}))).ok(201)
    both = widget(widgets, "b", either={"a": "x", "b": "y"})
    status = (await api.create(path, both)).refused(422, "Invalid")
    assert "spec.either" in status["message"]
    assert "must validate one and only one schema (oneOf)" in status["message"]


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


async def test_an_embedded_object_must_say_what_it_is(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace)
    good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"any": 1}}
    made = (await api.create(path, widget(widgets, "a", template=good))).ok(201)
    assert made["spec"]["template"] == good
    bad = await api.create(path, widget(widgets, "b", template={"metadata": {"name": "x"}}))
    status = bad.refused(422, "Invalid")
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert fields == {"spec.template.apiVersion", "spec.template.kind"}


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
