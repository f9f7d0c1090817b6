"""glue: keyset pagination: every page costs the same, and no row is shown twice.

A cursor is the position of the last row shown, newest first, by two fields: a time and a unique
number. It is opaque to clients and contains only data that the row shows.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.db.models import Model, Q

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

_M = TypeVar("_M", bound=Model)
Order = tuple[str, str]  # a time and a unique whole number, both descending


class CursorError(ValueError):
    """The cursor is invalid."""


@dataclass(frozen=True, slots=True)
class Page(Generic[_M]):
    """Rows and the cursor of the next page; None at the end."""

    rows: Sequence[_M]
    next_cursor: str | None


def read_page(rows: QuerySet[_M], order: Order, cursor: str, size: int) -> Page[_M]:
    """Return at most `size` rows after `cursor` (empty: the newest). Raise CursorError if
    invalid."""
    ordered = rows.order_by(*(f"-{name}" for name in order))
    if cursor:
        ordered = ordered.filter(_after(order, *_decode(cursor)))
    found = list(ordered[: size + 1])
    more = len(found) > size
    return Page(found[:size], _encode(order, found[size - 1]) if more else None)


def _after(order: Order, instant: dt.datetime, number: int) -> Q:
    # The first condition alone is what the index can use; the other decides between equals.
    time, unique = order
    strictly = Q(**{f"{time}__lt": instant}) | Q(**{f"{unique}__lt": number})
    return Q(**{f"{time}__lte": instant}) & strictly


def _encode(order: Order, row: Any) -> str:
    time, unique = (getattr(row, name) for name in order)
    text = json.dumps([time.isoformat(), unique], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[dt.datetime, int]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        time, number = json.loads(text)
        instant = dt.datetime.fromisoformat(time)
        if instant.utcoffset() != dt.timedelta(0) or type(number) is not int:
            raise CursorError(cursor)
        if abs(number) >= 2**63:
            raise CursorError(cursor)
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise CursorError("cursor: not a cursor of this list. Start again without it.") from error
    return instant, number
