"""The structure that the code promises: layers named, listed and of a readable size."""

from __future__ import annotations

import ast
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("ipuhub", "jobs", "partitions", "usage", "dashboard", "devcluster")
MODULES = sorted(
    path
    for app in APPS
    for path in (ROOT / app).rglob("*.py")
    if "_pb2" not in path.name and "migrations" not in path.parts
)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def layer_of(path: Path) -> str:
    first = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").splitlines()[0]
    return first.partition(":")[0]


def test_every_module_says_its_layer() -> None:
    modules = [path for path in MODULES if path.name != "__init__.py"]
    assert [name_of(m) for m in modules if layer_of(m) not in {"domain", "io", "glue"}] == []


def test_import_linter_watches_every_domain_module() -> None:
    config = ConfigParser()
    config.read(ROOT / ".importlinter")
    watched = config["importlinter:contract:domain"]["source_modules"].split()
    assert sorted(watched) == sorted(name_of(m) for m in MODULES if layer_of(m) == "domain")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"
