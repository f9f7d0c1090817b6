"""io: the logs of the demo's processes: one file each; the terminal shows only problems."""

from __future__ import annotations

import logging
import re
from collections import deque
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MOST_BYTES: Final = 10 * 1024 * 1024
_PROBLEM: Final = re.compile(r"\[(warning|error|critical) *\]|\b(ERROR|FATAL|PANIC):  |^Traceback ")
"""As our own processes and PostgreSQL mark lines."""


class ProcessLogs:
    """Writes what processes print into `directory`, NAME.log each, at most 20 MB a file.

    `show` gets problems, too. It is None while everything starts or stops: some processes wait for
    others then, and say so.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.show: Callable[[str, str], None] | None = None
        self._files: dict[str, RotatingFileHandler] = {}

    def write(self, name: str, line: str) -> None:
        """Write a line of the process `name`."""
        self._file(name).emit(logging.makeLogRecord({"msg": line}))
        if self.show is not None and _PROBLEM.search(line):
            self.show(name, line)

    def tail(self, name: str, lines: int = 20) -> list[str]:
        """Return the last lines of a process."""
        try:
            with self._path(name).open(encoding="utf-8", errors="replace") as file:
                return [line.rstrip("\n") for line in deque(file, lines)]
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _file(self, name: str) -> RotatingFileHandler:
        """Return the file of a process; the log of the start before becomes NAME.log.1."""
        if name not in self._files:
            self.directory.mkdir(parents=True, exist_ok=True)
            file = RotatingFileHandler(
                self._path(name), maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8"
            )
            if self._path(name).stat().st_size:
                file.doRollover()
            self._files[name] = file
        return self._files[name]
