"""Python processes forked from a server that has already imported our libraries.

A new process imports for a second before it starts; a fork starts immediately. Modules that read
settings are not imported beforehand, because the fork has its own environment.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.context import ForkServerProcess

_IMPORTED = ["tests.fakes.forkedlibraries"]
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(_IMPORTED)


def forked(
    command: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    log: Path | None = None,
    errors: Path | None = None,
) -> ForkServerProcess:
    """Start a script, a module (`-m`) or a text (`-c`) of ours, as `subprocess.Popen` does.

    What it prints is appended to `log`; its errors to `errors`, where that is given.
    """
    written = [each for each in (log, errors or log) if each is not None]
    for each in written:
        each.touch()  # to be read from now on
    arguments = (list(command), str(cwd), dict(environment), [*map(str, written)])
    process = _SERVER.Process(target=_run, args=arguments, daemon=True)
    process.start()
    return process


@dataclass(frozen=True)
class Answer:
    """The exit code of a command, and its output."""

    code: int
    out: str
    err: str


def answer_of(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Answer:
    """Run such a command to its end, as `subprocess.run` does."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = forked(command, cwd, environment, out, err)
        process.join(240)
        assert process.exitcode is not None, f"{command} does not end: {err.read_text()}"
        return Answer(process.exitcode, out.read_text("utf-8"), err.read_text("utf-8"))


def _run(command: list[str], cwd: str, environment: dict[str, str], written: list[str]) -> None:
    for number, path in enumerate(written, 1):
        with open(path, "ab", buffering=0) as file:  # noqa: PTH123
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        exec(command[1], {"__name__": "__main__"})
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
