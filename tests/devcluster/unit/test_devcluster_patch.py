"""JSON patch and merge patch; expectations as a 1.20 API server answers."""

from __future__ import annotations

import copy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.schemas.schema import copy_json
from devcluster.status import StatusError
from devcluster.storage.patch import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    apply_patch,
)

_SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text(alphabet="ab/~", max_size=2)
_KEYS = st.text(alphabet="abc/~", min_size=1, max_size=2)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_KEYS, _JSON, max_size=4)


def _without_nulls(value):
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _merge_diff(old, new):
    diff = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            diff[key] = value
        elif isinstance(value, dict) and isinstance(old[key], dict):
            diff[key] = _merge_diff(old[key], value)
        elif value != old[key] or type(value) is not type(old[key]):
            diff[key] = value
    return diff


@given(_OBJECTS, _OBJECTS.map(_without_nulls))
def test_a_merge_patch_of_the_difference_gives_the_modified_object(original, modified):
    diff = _merge_diff(original, modified)
    assert apply_patch(original, diff, MERGE_PATCH) == modified


@given(_OBJECTS, _OBJECTS)
def test_a_json_patch_of_the_difference_gives_the_modified_object(original, modified):
    diff = jsonpatch.make_patch(original, modified).patch
    assert apply_patch(original, diff, JSON_PATCH) == modified


@given(_OBJECTS, _OBJECTS)
def test_patching_never_changes_the_original_nor_the_patch(original, patch):
    before = copy.deepcopy((original, patch))
    result = apply_patch(original, patch, MERGE_PATCH)
    _scribble(result)
    assert (original, patch) == before


def _scribble(value):
    if isinstance(value, dict):
        for item in list(value.values()):
            _scribble(item)
        value["scribbled"] = 1
    elif isinstance(value, list):
        for item in value:
            _scribble(item)
        value.append("scribbled")


@given(_JSON)
def test_a_copy_equals_and_shares_nothing(value):
    before = copy.deepcopy(value)
    copied = copy_json(value)
    assert copied == value
    _scribble(copied)
    assert value == before


@pytest.mark.parametrize(
    ("original", "patch", "want"),
    [  # the examples of RFC 7386, appendix A, that start from an object
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_does_what_its_rfc_says(original, patch, want):
    assert apply_patch(original, patch, MERGE_PATCH) == want


_DOCUMENT = {"metadata": {"finalizers": ["a", "b"], "annotations": {"k": "v"}}, "n": 1}


@pytest.mark.parametrize(
    ("operation", "want"),
    [
        ({"op": "add", "path": "/metadata/finalizers/-", "value": "z"}, ["a", "b", "z"]),
        ({"op": "add", "path": "/metadata/finalizers/0", "value": "z"}, ["z", "a", "b"]),
        ({"op": "add", "path": "/metadata/finalizers/2", "value": "z"}, ["a", "b", "z"]),
        ({"op": "replace", "path": "/metadata/finalizers/1", "value": "c"}, ["a", "c"]),
        (
            {"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/1"},
            ["b", "a"],
        ),
        (
            {"op": "copy", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"},
            ["a", "b", "a"],
        ),
    ],
)
def test_json_patch_changes_arrays(operation, want):
    patched = apply_patch(_DOCUMENT, [operation], JSON_PATCH)
    assert patched["metadata"]["finalizers"] == want


def test_json_patch_unescapes_pointers():
    operation = {"op": "add", "path": "/metadata/annotations/a~1b~0", "value": "x"}
    patched = apply_patch(_DOCUMENT, [operation], JSON_PATCH)
    assert patched["metadata"]["annotations"] == {"k": "v", "a/b~": "x"}


def test_a_json_patch_is_applied_as_a_whole_or_not_at_all():
    operations = [
        {"op": "add", "path": "/x", "value": 1},
        {"op": "test", "path": "/n", "value": 2},
    ]
    with pytest.raises(StatusError):
        apply_patch(_DOCUMENT, operations, JSON_PATCH)
    assert "x" not in _DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/n", "value": 3},
        {"op": "test", "path": "/n", "value": True},
        {"op": "test", "path": "/absent", "value": 3},
        {"op": "remove", "path": "/absent"},
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "add", "path": "/absent/x", "value": 1},
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "add", "path": "/metadata/finalizers/9", "value": 1},
        {"op": "add", "path": "/metadata/finalizers/01", "value": 1},
        {"op": "add", "path": "/metadata/finalizers/x", "value": 1},
        {"op": "remove", "path": "/metadata/finalizers/7"},
        {"op": "remove", "path": ""},
        {"op": "bogus", "path": "/n"},
        {"op": "add", "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "add", "path": "metadata", "value": "x"},
        {"op": "add", "path": "", "value": 1},
        {"op": "move", "from": "/absent", "path": "/x"},
        {"op": "move", "from": "/metadata", "path": "/metadata/annotations/x"},
    ],
)
def test_a_json_patch_that_does_not_apply_is_422(operation):
    with pytest.raises(StatusError) as caught:
        apply_patch(_DOCUMENT, [operation], JSON_PATCH)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("content_type", "patch", "want_message"),
    [
        (JSON_PATCH, {"a": 1}, "cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (JSON_PATCH, [1], "cannot unmarshal array into Go value of type jsonpatch.Patch"),
        (STRATEGIC_PATCH, [1], "cannot unmarshal array into Go value of type map[string]interface"),
        (MERGE_PATCH, "x", "cannot unmarshal string into Go value of type map[string]interface"),
        (MERGE_PATCH, True, "cannot unmarshal bool into"),
        (MERGE_PATCH, 1, "cannot unmarshal number into"),
    ],
)
def test_a_patch_of_the_wrong_form_is_400(content_type, patch, want_message):
    with pytest.raises(StatusError) as caught:
        apply_patch({}, patch, content_type, {})
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert want_message in caught.value.message


@pytest.mark.parametrize(
    ("content_type", "merge_keys"), [("application/x", {}), (STRATEGIC_PATCH, None)]
)
def test_an_unknown_patch_type_and_strategic_merge_of_a_custom_resource_are_415(
    content_type, merge_keys
):
    with pytest.raises(StatusError) as caught:
        apply_patch({}, {}, content_type, merge_keys)
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in caught.value.message


def test_parameters_of_the_content_type_do_not_matter():
    assert apply_patch({}, {"a": 1}, "application/merge-patch+json; charset=utf-8") == {"a": 1}
