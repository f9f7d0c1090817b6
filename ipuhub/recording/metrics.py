"""io: what the recordings of this process say of themselves to Prometheus."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ipuhub.process.metrics import Meters
from ipuhub.recording import metrictable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ipuhub.recording.recorder import Fault
    from ipuhub.recording.store import Gaps

RECORDINGS: Final = Meters(metrictable.TABLE)
EVENTS: Final = RECORDINGS.counter(metrictable.EVENTS)
ROWS: Final = RECORDINGS.counter(metrictable.ROWS)
COMMITS: Final = RECORDINGS.counter(metrictable.COMMITS)
FAULTS: Final = RECORDINGS.counter(metrictable.FAULTS)
VANISHED: Final = RECORDINGS.counter(metrictable.VANISHED)
LISTS: Final = RECORDINGS.counter(metrictable.LISTS)
LAG: Final = RECORDINGS.gauge(metrictable.LAG)
POSITION: Final = RECORDINGS.gauge(metrictable.POSITION)
GAPS: Final = RECORDINGS.gauge(metrictable.GAPS)
NEWEST_GAP: Final = RECORDINGS.gauge(metrictable.NEWEST_GAP)
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
    RECORDINGS.set(metrictable.POSITION_AGE, ages)


RECORDINGS.at_scrape(_fill)
