"""The files of the product that a function enters, and the number of moves between files.

A person who follows the code has to open these files. `pytest tests -k files_entered -s` prints
them.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HOUSES = ("dashboard", "devcluster", "ipuhub", "jobs", "partitions", "usage")


@dataclass
class Entered:
    """Calls into each file, by its path in the repository, and moves from one file to another."""

    calls: dict[str, int] = field(default_factory=dict)
    moves: int = 0

    def __str__(self) -> str:
        lines = [f"{len(self.calls)} files, {self.moves} moves"]
        lines += [f"  {calls:5} {name}" for name, calls in sorted(self.calls.items())]
        return "\n".join(lines)


@contextmanager
def files_entered() -> Iterator[Entered]:
    """Watch every call of this thread, and of threads begun meanwhile, until the block ends."""
    seen = Entered()
    known: dict[str, str] = {}

    def name_of(path: str) -> str:
        if path not in known:
            file = Path(path)
            own = file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in HOUSES
            known[path] = str(file.relative_to(ROOT)) if own else ""
        return known[path]

    def watch(frame: Any, event: str, _: Any) -> None:
        if event != "call" or not (name := name_of(frame.f_code.co_filename)):
            return
        seen.calls[name] = seen.calls.get(name, 0) + 1
        caller = frame.f_back
        seen.moves += caller is None or name_of(caller.f_code.co_filename) != name

    before = sys.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    print(f"\n{seen}")
