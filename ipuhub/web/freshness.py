"""glue: how old the recorded data of a page are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.models import WatchCheckpoint

if TYPE_CHECKING:
    from datetime import datetime

STALE_SECONDS = 90  # a watch shows at least a bookmark each minute


@dataclass(frozen=True, slots=True)
class Freshness:
    """When the cluster was last heard of (None: never, or just now), and if that is long ago."""

    seen_at: datetime | None
    is_stale: bool


def freshness(watch: str, now: datetime) -> Freshness:
    """Return it for what the recorder with this checkpoint keeps."""
    rows = WatchCheckpoint.objects.filter(name=watch)
    return judge(rows.values_list("position_at", flat=True).first(), now)


def judge(seen: datetime | None, now: datetime) -> Freshness:
    """Return it for a watch that was last heard of at `seen`."""
    stale = seen is None or (now - seen).total_seconds() > STALE_SECONDS
    # A fresh time changes with every event: without it an unchanged page keeps its ETag.
    return Freshness(seen if stale else None, stale)
