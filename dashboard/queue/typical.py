"""io: run times of past jobs of the same size, for waiting jobs without a better estimate.

Read at most once a minute for each job and group of readers: the median of many runs hardly moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ipuhub.web.readings import Shared
from jobs.selectors import typical_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from dashboard.fleetqueue import Waiting
    from ipuhub.web.access import Scope
    from jobs.selectors import TypicalRun

# By job, not by page: each page, and each change of the queue, has other jobs.
_Runs = dict[str, "TypicalRun | None"]
_KEPT: Final[Shared[frozenset[str] | None, _Runs]] = Shared(seconds=60, most=1000)


def with_typical_runs(lines: Iterable[Waiting], scope: Scope, now: datetime) -> tuple[Waiting, ...]:
    """Return the lines; lines of visible jobs without an estimate get the typical run time of jobs
    of their size."""
    listed = tuple(lines)
    uids = {line.job.uid for line in listed if line.job and line.is_open}
    if not uids:
        return listed
    if unknown := unknown_runs(uids, scope, now):
        keep_runs(unknown, typical_runs(scope, unknown), scope, now)
    known = _KEPT.get(scope.namespaces, now, dict)
    return tuple(_with_run(line, known) for line in listed)


def unknown_runs(uids: Iterable[str], scope: Scope, now: datetime) -> set[str]:
    """Return the waiting jobs whose typical run time is not in the cache."""
    return set(uids) - _KEPT.get(scope.namespaces, now, dict).keys()


def keep_runs(
    uids: Iterable[str], found: Mapping[str, TypicalRun], scope: Scope, now: datetime
) -> None:
    """Store the typical run times of these jobs, also that a job has none."""
    _KEPT.get(scope.namespaces, now, dict).update({**dict.fromkeys(uids), **found})


def _with_run(line: Waiting, known: _Runs) -> Waiting:
    run = known.get(line.job.uid) if line.job and line.is_open else None
    return replace(line, typical=(run.seconds, run.jobs)) if run else line
