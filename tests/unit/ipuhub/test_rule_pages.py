"""The tables of rules in docs/developer name tests; each must be there, and each rule has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs/developer").glob("*-rules.md"))
NAMED = re.compile(r"`([^`\s]+\.py)::(\w+)`")
LINE = re.compile(r"\|(?P<rule>[^|]+)\|(?P<tests>[^|]+)\|")


@cache
def names_in(file: str) -> frozenset[str]:
    """Names of the test functions of a file below tests/, or of none where it is missing."""
    path = ROOT / "tests" / file
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in nodes if isinstance(node, functions))


def rules(text: str) -> list[tuple[str, str]]:
    """Rule and tests of each line of the page's tables, without their heads."""
    found = [LINE.fullmatch(line.strip()) for line in text.splitlines()]
    rows = [(match["rule"].strip(), match["tests"]) for match in found if match]
    return [row for row in rows if row[0] != "rule" and set(row[0]) != {"-"}]


def unknown_tests(text: str) -> list[str]:
    return [f"{file}::{name}" for file, name in NAMED.findall(text) if name not in names_in(file)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_rule_names_tests_that_exist(page: Path) -> None:
    text = page.read_text()
    assert unknown_tests(text) == []
    assert [rule for rule, tests in rules(text) if not NAMED.search(tests)] == []
    assert len(rules(text)) > 20


def test_a_name_that_no_test_has_is_found() -> None:
    here = "unit/ipuhub/test_rule_pages.py"
    right = f"`{here}::test_a_name_that_no_test_has_is_found`"
    assert unknown_tests(right) == []
    assert unknown_tests(f"{right} `{here}::test_nothing` `unit/none.py::test_it`") == [
        f"{here}::test_nothing",
        "unit/none.py::test_it",
    ]
