"""The list of known differences names real tests and is documented."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[2] / "docs/developer/embedded-api.md"


def entries() -> list[dict[str, object]]:
    found: list[dict[str, object]] = tomllib.loads((HERE / "differences.toml").read_text())[
        "difference"
    ]
    return found


def listed_tests() -> list[str]:
    return [str(test) for entry in entries() for test in entry["tests"]]  # type: ignore[attr-defined]


def test_each_listed_difference_names_a_test_that_exists() -> None:
    for test in listed_tests():
        file, _, name = test.partition("::")
        tree = ast.parse((HERE / file).read_text())
        names = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name.partition("[")[0] in names, f"differences.toml names {test}"


def test_no_test_is_listed_twice() -> None:
    assert len(listed_tests()) == len(set(listed_tests()))


def test_the_document_gives_every_difference_and_its_reason() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    for entry in entries():
        assert f"**{entry['what']}**" in text
        assert str(entry["reason"]) in text
