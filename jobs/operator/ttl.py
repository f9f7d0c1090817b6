"""domain: when a finished job is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ipujob.manifests import parse_time
from jobs.ipujob.spec import whole_number

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.operator.observed import Observed


def seconds_left(observed: Observed, now: datetime) -> float | None:
    """Seconds until `ttlSecondsAfterFinished` is over (0 or less: it is); None: it stays."""
    spec = (observed.job or {}).get("spec") or {}
    seconds = whole_number(spec.get("ttlSecondsAfterFinished"))
    ended = parse_time(observed.status().get("completionTime"))
    if seconds is None or seconds < 0 or ended is None:
        return None
    return seconds - (now - ended).total_seconds()
