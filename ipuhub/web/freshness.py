"""glue: how old the recorded data of a page are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.models import WatchCheckpoint

if TYPE_CHECKING:
    import datetime as dt

STALE_SECONDS = 90  # a watch shows at least a bookmark each minute


@dataclass(frozen=True, slots=True)
class Freshness:
    """When the cluster was last heard of, and whether that is too long ago."""

    seen_at: dt.datetime | None
    is_stale: bool


def freshness(watch: str, now: dt.datetime) -> Freshness:
    """Return it for what the recorder of `watch` (`jobs`, `pods`, `partitions`) keeps."""
    rows = WatchCheckpoint.objects.filter(name=watch)
    seen = rows.values_list("position_at", flat=True).first()
    stale = seen is None or (now - seen).total_seconds() > STALE_SECONDS
    # A fresh time changes with every event: without it an unchanged page keeps its ETag.
    return Freshness(seen if stale else None, stale)
