"""The JSONPath of printer columns and scale subresources."""

from __future__ import annotations

import pytest

from devcluster.printing.tables import JsonPathError, find

_OBJECT = {"spec": {"a": {"x": 1, "y": [2, 3]}, "l": [{"n": "p", "v": 1}, {"n": "q"}]}}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (".spec.a.x", [1]),
        ("{.spec.a.x}", [1]),
        ("spec.a.x", [1]),
        ("$.spec.a.x", [1]),
        (".", [_OBJECT]),
        (".spec.a.*", [1, [2, 3]]),
        (".spec.a.x.*", []),
        (".spec.a.y[*]", [2, 3]),
        (".spec.a.y[0:1]", [2]),
        (".spec.a.x[0:1]", []),
        (".spec.a.x[0]", []),
        ('.spec["a"].x', [1]),
        (".spec.l[?(@.v>=1)].n", ["p"]),
        (".spec.l[?(@.v<2)].n", ["p"]),
        (".spec.l[?(@.n==q)].v", []),
        (".spec.l[?(@.n==q)].n", ["q"]),
        (".spec.l[?(@.n==@.z)].n", []),
    ],
)
def test_a_path_finds_every_value_it_names(path, want):
    assert find(path, _OBJECT) == want


@pytest.mark.parametrize("path", [".spec[", ".spec[?(x)]", ".spec[a]"])
def test_a_path_that_cannot_be_read_says_where(path):
    with pytest.raises(JsonPathError, match=r"cannot read the JSONPath at '\["):
        find(path, _OBJECT)
