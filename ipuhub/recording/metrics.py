"""io: metrics of recordings, by watch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ipuhub.process.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ipuhub.recording.recorder import Fault
    from ipuhub.recording.store import Gaps

RECORDINGS = Meters()
EVENTS = RECORDINGS.counter(
    "ipuhub_recording_events_total",
    "Changes read from the watch.",
    "Does the prober read changes?",
    "watch",
)
ROWS = RECORDINGS.counter(
    "ipuhub_recording_rows_total",
    "Rows written (inserts and updates).",
    "Does the prober record the changes it reads?",
    "watch",
)
COMMITS = RECORDINGS.counter(
    "ipuhub_recording_commits_total",
    "Transactions committed.",
    "How large are batches?",
    "watch",
)
FAULTS = RECORDINGS.counter(
    "ipuhub_recording_faults_total",
    "Objects recorded with a fault, by kind (refused: by PostgreSQL). The page of faults lists "
    "them.",
    "Is usage missing from the record, and why?",
    "watch",
    "code",
)
VANISHED = RECORDINGS.counter(
    "ipuhub_recording_vanished_total",
    "Rows closed by a full list because the prober missed their end.",
    "Did the prober miss the end of pods?",
    "watch",
)
LISTS = RECORDINGS.counter(
    "ipuhub_recording_lists_total",
    "Full lists committed.",
    "Does a watch of the prober fail repeatedly?",
    "watch",
)
LAG = RECORDINGS.gauge(
    "ipuhub_recording_lag_seconds",
    "Time from reading the first change of the last batch to its commit.",
    "Is the prober keeping up?",
    "watch",
)
POSITION = RECORDINGS.gauge(
    "ipuhub_recording_position_timestamp_seconds",
    "Everything up to this time is committed.",
    "Until when is usage complete?",
    "watch",
)
POSITION_AGE = RECORDINGS.gauge(
    "ipuhub_recording_position_age_seconds",
    "Seconds since the committed position; up to about 60 s for an idle watch.",
    "How far is the record behind?",
    "watch",
)
GAPS = RECORDINGS.gauge(
    "ipuhub_recording_gaps",
    "Recorded gaps of the watch.",
    "Are there gaps in the record?",
    "watch",
)
NEWEST_GAP = RECORDINGS.gauge(
    "ipuhub_recording_newest_gap_timestamp_seconds",
    "End of the newest gap. Absent if there are no gaps.",
    "When was the last gap?",
    "watch",
)
JOB_EVENTS_DROPPED = RECORDINGS.counter(
    "ipuhub_recording_job_events_dropped_total",
    "Kubernetes Events of pods or jobs that were not stored; cause: backlog (too many wait for the "
    "record of their job; the prober lists them again), refused (by PostgreSQL).",
    "Are Kubernetes Events missing from the pages of jobs?",
    "cause",
)
_POSITIONS: Final[dict[str, float]] = {}


def count_faults(watch: str, faults: Iterable[Fault]) -> None:
    """Count faults by their kind."""
    for fault in faults:
        FAULTS.labels(watch, fault.code).inc()


def record_position(watch: str, position_at: datetime | None) -> None:
    """Set how far `watch` is committed; None: nothing is."""
    if position_at is not None:
        _POSITIONS[watch] = position_at.timestamp()
        POSITION.labels(watch).set(_POSITIONS[watch])


def record_gaps(watch: str, gaps: Gaps) -> None:
    """Set how many gaps are stored, and when the newest ended."""
    GAPS.labels(watch).set(gaps.stored)
    if gaps.newest is not None:
        NEWEST_GAP.labels(watch).set(gaps.newest.timestamp())


def fill_position_ages() -> None:
    """Say how old the committed positions are."""
    now = time.time()
    POSITION_AGE.set_all({(watch,): max(now - at, 0.0) for watch, at in _POSITIONS.items()})
