"""glue: builds the web process's readers from settings, once."""

from __future__ import annotations

from functools import lru_cache

from ipuhub.web.connections import sources
from ipuhub.web.live import LiveReader


@lru_cache(maxsize=1)
def live_reader() -> LiveReader:
    """Return the process's one reader of the present."""
    return LiveReader(sources)
