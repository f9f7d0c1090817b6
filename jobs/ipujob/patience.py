"""domain: how long the operator waits, and how often it tries, before it gives something up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Patience:
    """`most_losses`: attempts in a row that may end through no fault of the job (0: no limit).
    `hold_seconds`: a pause that is longer gives the partition back. `start_seconds`: how long an
    attempt that cannot start keeps its partition."""

    most_losses: int = 50
    hold_seconds: float = 60.0
    start_seconds: float = 600.0


USUAL: Final = Patience()
