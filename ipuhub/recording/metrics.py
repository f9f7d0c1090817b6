"""io: what the recordings of this process say of themselves to Prometheus.

The metrics of recordings, by what they watch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ipuhub.process.metrics import Meters
from ipuhub.process.metrictable import Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ipuhub.recording.recorder import Fault
    from ipuhub.recording.store import Gaps

_WATCH = ("watch",)
EVENTS_METRIC = Metric(
    "ipuhub_recording_events_total",
    Kind.COUNTER,
    "Changes read from the watch.",
    "Does the prober read at all?",
    _WATCH,
)
ROWS_METRIC = Metric(
    "ipuhub_recording_rows_total",
    Kind.COUNTER,
    "Rows written, again or anew.",
    "Does the prober record what it reads?",
    _WATCH,
)
COMMITS_METRIC = Metric(
    "ipuhub_recording_commits_total",
    Kind.COUNTER,
    "Transactions committed.",
    "How large are batches?",
    _WATCH,
)
FAULTS_METRIC = Metric(
    "ipuhub_recording_faults_total",
    Kind.COUNTER,
    "Objects not taken as they stood, by kind of fault (refused: by PostgreSQL); the page of "
    "faults names them.",
    "Is something not accounted? Of what kind?",
    ("watch", "code"),
)
VANISHED_METRIC = Metric(
    "ipuhub_recording_vanished_total",
    Kind.COUNTER,
    "Rows ended by a full list, since the end itself was not seen.",
    "Were ends missed?",
    _WATCH,
)
LISTS_METRIC = Metric(
    "ipuhub_recording_lists_total",
    Kind.COUNTER,
    "Full lists committed.",
    "Does a watch of the prober break off again and again?",
    _WATCH,
)
LAG_METRIC = Metric(
    "ipuhub_recording_lag_seconds",
    Kind.GAUGE,
    "From reading the last batch's first change to its commit.",
    "Is the prober keeping up?",
    _WATCH,
)
POSITION_METRIC = Metric(
    "ipuhub_recording_position_timestamp_seconds",
    Kind.GAUGE,
    "Before it, all that happened is committed.",
    "Until when is usage complete?",
    _WATCH,
)
POSITION_AGE = Metric(
    "ipuhub_recording_position_age_seconds",
    Kind.GAUGE,
    "Since the committed position; a quiet watch comes to about 60 s.",
    "How far is the record behind?",
    _WATCH,
)
GAPS_METRIC = Metric(
    "ipuhub_recording_gaps",
    Kind.GAUGE,
    "Stored times in which the watch saw nothing.",
    "Was something missed?",
    _WATCH,
)
NEWEST_GAP_METRIC = Metric(
    "ipuhub_recording_newest_gap_timestamp_seconds",
    Kind.GAUGE,
    "When the newest gap ended. None where there is none.",
    "When was something missed last?",
    _WATCH,
)
TABLE = (
    EVENTS_METRIC,
    ROWS_METRIC,
    COMMITS_METRIC,
    FAULTS_METRIC,
    VANISHED_METRIC,
    LISTS_METRIC,
    LAG_METRIC,
    POSITION_METRIC,
    POSITION_AGE,
    GAPS_METRIC,
    NEWEST_GAP_METRIC,
)
RECORDINGS: Final = Meters(TABLE)
EVENTS: Final = RECORDINGS.counter(EVENTS_METRIC)
ROWS: Final = RECORDINGS.counter(ROWS_METRIC)
COMMITS: Final = RECORDINGS.counter(COMMITS_METRIC)
FAULTS: Final = RECORDINGS.counter(FAULTS_METRIC)
VANISHED: Final = RECORDINGS.counter(VANISHED_METRIC)
LISTS: Final = RECORDINGS.counter(LISTS_METRIC)
LAG: Final = RECORDINGS.gauge(LAG_METRIC)
POSITION: Final = RECORDINGS.gauge(POSITION_METRIC)
GAPS: Final = RECORDINGS.gauge(GAPS_METRIC)
NEWEST_GAP: Final = RECORDINGS.gauge(NEWEST_GAP_METRIC)
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


def _fill() -> None:
    ages = {(watch,): max(time.time() - at, 0.0) for watch, at in _POSITIONS.items()}
    RECORDINGS.set(POSITION_AGE, ages)


RECORDINGS.at_scrape(_fill)
