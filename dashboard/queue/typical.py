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

Runs = dict[str, "TypicalRun | None"]
# By job, not by page: each page, and each change of the queue, has other jobs.
_KEPT: Final[Shared[frozenset[str] | None, Runs]] = Shared(seconds=60, most=1000)


def with_typical_runs(lines: Iterable[Waiting], scope: Scope, now: datetime) -> tuple[Waiting, ...]:
    """Return the lines; lines of visible jobs without an estimate get the typical run time of jobs
    of their size."""
    listed = tuple(lines)
    uids = {line.job.uid for line in listed if line.job and line.is_open}
    if not uids:
        return listed
    known = known_runs(scope, now)
    if unknown := missing_runs(uids, known):
        keep_runs(known, unknown, typical_runs(scope, unknown))
    return with_runs(listed, known)


def known_runs(scope: Scope, now: datetime) -> Runs:
    """Return the cache of these readers. A request asks once and uses the result throughout: each
    minute begins another, without the run times that were just kept."""
    return _KEPT.get(scope.namespaces, now, dict)


def missing_runs(uids: Iterable[str], known: Runs) -> set[str]:
    """Return the waiting jobs whose typical run time is not known."""
    return {uid for uid in uids if uid not in known}


def keep_runs(known: Runs, uids: Iterable[str], found: Mapping[str, TypicalRun]) -> None:
    """Store the typical run times of these jobs, also that a job has none."""
    known.update({**dict.fromkeys(uids), **found})


def with_runs(lines: Iterable[Waiting], known: Runs) -> tuple[Waiting, ...]:
    """Return the lines with the run times that are known."""
    return tuple(_with_run(line, known) for line in lines)


def _with_run(line: Waiting, known: Runs) -> Waiting:
    run = known.get(line.job.uid) if line.job and line.is_open else None
    return replace(line, typical=(run.seconds, run.jobs)) if run else line
