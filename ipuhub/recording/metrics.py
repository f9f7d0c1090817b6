"""io: what the recordings of this process say of themselves to Prometheus."""

from __future__ import annotations

from typing import Final

from ipuhub.metrics import Meters
from ipuhub.recording import metrictable

RECORDINGS: Final = Meters(metrictable.TABLE)
EVENTS: Final = RECORDINGS.counter(metrictable.EVENTS)
ROWS: Final = RECORDINGS.counter(metrictable.ROWS)
COMMITS: Final = RECORDINGS.counter(metrictable.COMMITS)
FAULTS: Final = RECORDINGS.counter(metrictable.FAULTS)
VANISHED: Final = RECORDINGS.counter(metrictable.VANISHED)
LISTS: Final = RECORDINGS.counter(metrictable.LISTS)
LAG: Final = RECORDINGS.gauge(metrictable.LAG)
POSITION: Final = RECORDINGS.gauge(metrictable.POSITION)
