"""Python processes forked from a server that has already imported our libraries.

A new process imports for a second before it starts; a fork starts immediately. Modules that read
settings are not imported beforehand, because the fork has its own environment.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

_IMPORTED = ["tests.fakes.forkedlibraries"]
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(_IMPORTED)


def forked(
    command: Sequence[str], cwd: Path, environment: Mapping[str, str], log: Path | None = None
) -> ForkServerProcess:
    """Start a script or (`-m`) module of ours with its arguments, as `subprocess.Popen` does.

    What it prints is appended to `log`.
    """
    if log is not None:
        log.touch()  # to be read from now on
    into = "" if log is None else str(log)
    arguments = (list(command), str(cwd), dict(environment), into)
    process = _SERVER.Process(target=_run, args=arguments, daemon=True)
    process.start()
    return process


def _run(command: list[str], cwd: str, environment: dict[str, str], log: str) -> None:
    if log:
        with open(log, "ab", buffering=0) as file:  # noqa: PTH123
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
