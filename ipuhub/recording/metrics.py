"""io: the metrics of recordings, by what they watch."""

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
    "Does the prober read at all?",
    "watch",
)
ROWS = RECORDINGS.counter(
    "ipuhub_recording_rows_total",
    "Rows written, again or anew.",
    "Does the prober record what it reads?",
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
    "Objects not taken as they stood, by kind of fault (refused: by PostgreSQL); the page of "
    "faults names them.",
    "Is something not accounted? Of what kind?",
    "watch",
    "code",
)
VANISHED = RECORDINGS.counter(
    "ipuhub_recording_vanished_total",
    "Rows ended by a full list, since the end itself was not seen.",
    "Were ends missed?",
    "watch",
)
LISTS = RECORDINGS.counter(
    "ipuhub_recording_lists_total",
    "Full lists committed.",
    "Does a watch of the prober break off again and again?",
    "watch",
)
LAG = RECORDINGS.gauge(
    "ipuhub_recording_lag_seconds",
    "From reading the last batch's first change to its commit.",
    "Is the prober keeping up?",
    "watch",
)
POSITION = RECORDINGS.gauge(
    "ipuhub_recording_position_timestamp_seconds",
    "Before it, all that happened is committed.",
    "Until when is usage complete?",
    "watch",
)
POSITION_AGE = RECORDINGS.gauge(
    "ipuhub_recording_position_age_seconds",
    "Since the committed position; a quiet watch comes to about 60 s.",
    "How far is the record behind?",
    "watch",
)
GAPS = RECORDINGS.gauge(
    "ipuhub_recording_gaps",
    "Stored times in which the watch saw nothing.",
    "Was something missed?",
    "watch",
)
NEWEST_GAP = RECORDINGS.gauge(
    "ipuhub_recording_newest_gap_timestamp_seconds",
    "When the newest gap ended. None where there is none.",
    "When was something missed last?",
    "watch",
)
_POSITIONS: Final[dict[str, float]] = {}


def count_faults(watch: str, faults: Iterable[Fault]) -> None:
    """Count faults by their kind."""
    for fault in faults:
        FAULTS.labels(watch, fault.code).inc()


def tell_position(watch: str, position_at: datetime | None) -> None:
    """Tell how far `watch` is committed; None: nothing is."""
    if position_at is not None:
        _POSITIONS[watch] = position_at.timestamp()
        POSITION.labels(watch).set(_POSITIONS[watch])


def tell_gaps(watch: str, gaps: Gaps) -> None:
    """Tell how many gaps are stored, and when the newest one ended."""
    GAPS.labels(watch).set(gaps.stored)
    if gaps.newest is not None:
        NEWEST_GAP.labels(watch).set(gaps.newest.timestamp())


def fill_position_ages() -> None:
    """Say how old the committed positions are."""
    now = time.time()
    POSITION_AGE.set_all({(watch,): max(now - at, 0.0) for watch, at in _POSITIONS.items()})
