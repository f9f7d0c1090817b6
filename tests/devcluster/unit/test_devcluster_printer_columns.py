"""Tables of custom resources: printer columns and what their paths find."""

from __future__ import annotations

import pytest

from devcluster.printing.tables import as_table
from devcluster.schemas.kinds import Kind
from tests.builders.tables import MADE, NOW

_CUSTOM = Kind("x.io", "v1", "us", "u", "U")
_COLUMNS = {
    "S": ("string", ".spec.s", "text"),
    "I": ("integer", ".spec.i", 3),
    "N": ("number", ".spec.n", 1.5),
    "B": ("boolean", ".spec.b", True),
    "D": ("date", ".spec.d", "6y326d"),
    "Age": ("date", ".metadata.creationTimestamp", "12s"),
    "L0": ("string", ".spec.l[0].n", "x"),
    "Obj": ("string", ".spec.o", '{"a":[1,"b"],"k":"v"}'),
    "IasS": ("string", ".spec.i", "3"),
    "SasI": ("integer", ".spec.s", None),
    "BasI": ("integer", ".spec.b", None),
    "BasS": ("string", ".spec.b", "true"),
    "DasS": ("string", ".metadata.creationTimestamp", MADE),
    "Null": ("string", ".spec.null", None),
    "BadDate": ("date", ".spec.s", "<invalid>"),
    "NoDate": ("date", ".spec.i", None),
    "Missing": ("string", ".spec.nope.x", None),
    "Outside": ("string", ".spec.l[9].n", None),
}


@pytest.mark.parametrize("name", _COLUMNS)
def test_a_printer_column_of_a_crd_shows_what_its_path_finds(name):
    kind, path, want = _COLUMNS[name]
    obj = {
        "metadata": {"name": "a", "annotations": {"a.b/c": "esc"}, "creationTimestamp": MADE},
        "spec": {
            "s": "text",
            "i": 3,
            "n": 1.5,
            "b": True,
            "d": "2020-01-01T00:00:00Z",
            "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}, {"n": "z", "v": 3, "w": 3}],
            "o": {"k": "v", "a": [1, "b"]},
            "null": None,
        },
        "status": {"conditions": [{"type": "Q"}, {"type": "Ready", "status": "True"}]},
    }
    columns = [{"name": name, "type": kind, "jsonPath": path, "priority": 1}]
    table = as_table(_CUSTOM, [obj], columns, NOW)
    assert table["rows"][0]["cells"] == ["a", want]
    assert table["columnDefinitions"][1] == {
        "name": name,
        "type": kind,
        "format": "",
        "description": f"Custom resource definition column (in JSONPath format): {path}",
        "priority": 1,
    }


def test_a_custom_resource_without_columns_shows_its_age():
    obj = {"metadata": {"name": "a", "creationTimestamp": MADE}}
    table = as_table(_CUSTOM, [obj], [], NOW)
    assert [(c["name"], c["type"]) for c in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Age", "date"),
    ]
    assert table["rows"][0]["cells"] == ["a", "12s"]
