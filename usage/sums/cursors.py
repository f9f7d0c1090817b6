"""glue: cursors of lists of sums: the last row shown, and up to when pods were counted.

A list of sums goes on growing while pods run: all its pages count up to the instant of the first,
so that no row changes its place between them.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from ipuhub.web.filters import BadFilter
from usage.sums.queries import Place

_MOST = 10**100  # no sum of this database comes near


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a list goes on: after `place`, with everything counted up to `until`."""

    until: datetime
    place: Place


def write_cursor(cursor: Cursor) -> str:
    """Return a cursor as text for a URL."""
    record = [cursor.until.isoformat(), cursor.place.rank, *cursor.place.key]
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str, dimensions: int, now: datetime) -> Cursor:
    """Return the cursor of a list by this many dimensions. Raises BadFilter for any other."""
    try:
        until, rank, *key = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        instant = datetime.fromisoformat(until)
        is_ours = (
            instant.utcoffset() == timedelta(0)
            and instant <= now
            and type(rank) is int
            and abs(rank) < _MOST
            and len(key) == dimensions
            and all(isinstance(each, str) and "\0" not in each for each in key)
        )
        # Half of a surrogate pair can be written in JSON and is no text for a database.
        "".join(key).encode()
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise BadFilter([_SENTENCE]) from error
    if not is_ours:
        raise BadFilter([_SENTENCE])
    return Cursor(instant, Place(rank, tuple(key)))


_SENTENCE = "cursor: this is no cursor of this list. Start again without it."
