"""The objects with malformed fields, as a Lease names them."""

from __future__ import annotations

import json

import pytest

from ipuhub.kube.malformed import NOTHING, MalformedObjects, read_annotation


def test_each_object_counts_once_and_the_last_are_named() -> None:
    found = MalformedObjects()
    assert found.text == ""
    for number in range(7):
        assert found.add("Pod", "team-a", f"p{number}", ["status.phase"])
    assert not found.add("Pod", "team-a", "p6", ["status.phase"])  # read again
    assert found.add("Node", "", "n1", [f"spec.{each}" for each in "abcdefg"])
    assert found.add("Lease", "", "", ["metadata.name"])
    read = read_annotation(found.text)
    assert read.objects == 9
    assert read.last == (
        "Pod team-a/p4: status.phase",
        "Pod team-a/p5: status.phase",
        "Pod team-a/p6: status.phase",
        "Node n1: spec.a, spec.b, spec.c, spec.d, spec.e and 2 more",
        "Lease without a name: metadata.name",
    )


def test_an_annotation_has_a_bound_however_much_is_malformed() -> None:
    found = MalformedObjects()
    for number in range(1100):
        found.add("Pod", "a" * 63, f"{number:0250}", ["x" * 1000])
    assert read_annotation(found.text).objects == 1000
    assert len(found.text) < 4096


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"objects": "many", "last": []}', '{"objects": 1, "last": 2}']
)
def test_an_annotation_that_is_itself_malformed_says_nothing(text: str) -> None:
    assert read_annotation(text) == NOTHING


def test_of_a_long_annotation_the_last_objects_are_read() -> None:
    text = json.dumps({"objects": 9, "last": [f"Pod a/p{number}: x" for number in range(9)]})
    assert read_annotation(text).last[0] == "Pod a/p4: x"
