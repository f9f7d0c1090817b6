"""io: parent, command line and environment of a forked process, as the kernel shows them.

An exec sets command line and environment, and the caller is the parent. A fork shows its fork
server's instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
# Of /proc/self/stat, counted from the state on: where the kernel reads a process's arguments and
# its environment.
_ARGUMENTS, _ENVIRONMENT = slice(45, 47), slice(47, 49)


def end_with_parent() -> None:
    """Let the kernel send us SIGTERM when our parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Adopt orphaned descendants inside this context.

    Only there: an adopted process stays a zombie until we wait for it, and we wait for forks alone.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def show_command(command: Sequence[str]) -> None:
    """Make `command` ours in /proc/PID/cmdline, as far as it has room in the one we came with."""
    _write(_ARGUMENTS, command)


def take_environment(environment: Mapping[str, str]) -> None:
    """Make `environment` ours, also in /proc/PID/environ, as far as it has room there."""
    os.environ.clear()
    os.environ.update(environment)
    # Nothing points there any more: the C library has copies of what was just set.
    _write(_ENVIRONMENT, [f"{name}={value}" for name, value in environment.items()])


def _write(where: slice, strings: Sequence[str]) -> None:
    stat = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    start, end = map(int, stat[where])
    text = b"".join(os.fsencode(each) + b"\0" for each in strings)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))


def _prctl(option: int, value: int) -> None:
    """Raise OSError if the kernel refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
