"""io: how long jobs ran that are like those that wait, for lines that have nothing better.

Read at most once a minute for each group of readers: the median of many runs hardly moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ipuhub.web.readings import Shared
from jobs.selectors import typical_runs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from dashboard.fleetqueue import Waiting
    from ipuhub.web.access import Scope
    from jobs.selectors import TypicalRun

_Key = tuple[frozenset[str] | None, frozenset[str]]
_KEPT: Final[Shared[_Key, dict[str, TypicalRun]]] = Shared(seconds=60, most=1000)


def with_typical_runs(lines: Iterable[Waiting], scope: Scope, now: datetime) -> tuple[Waiting, ...]:
    """Return the lines, those of visible jobs for which no time limit says when their block is
    free with the time that such jobs ran."""
    shown = tuple(lines)
    asked = frozenset(line.job.uid for line in shown if line.job and _is_open(line))
    if not asked:
        return shown
    found = _KEPT.get((scope.namespaces, asked), now, lambda: typical_runs(scope, asked))
    return tuple(_with_run(line, found) for line in shown)


def _is_open(line: Waiting) -> bool:
    return line.kind in {"block", "blocked"} and line.free_by is None


def _with_run(line: Waiting, found: dict[str, TypicalRun]) -> Waiting:
    run = found.get(line.job.uid) if line.job and _is_open(line) else None
    return replace(line, typical=(run.seconds, run.jobs)) if run else line
