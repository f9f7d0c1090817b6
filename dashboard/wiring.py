"""glue: builds the web process's readers from settings, once."""

from __future__ import annotations

from functools import lru_cache

from dashboard.live import LiveReader
from partitions.connections import sources


@lru_cache(maxsize=1)
def live_reader() -> LiveReader:
    """Return the process's one reader of the present."""
    return LiveReader(sources)
