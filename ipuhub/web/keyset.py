"""glue: keyset pagination: every page costs the same, and no row is shown twice.

A cursor is the position of the first or last row shown: the values of the fields that decide the
order, the last of them unique. It names its order, is checked value by value, is opaque to clients
and contains only data that the row shows.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.db.models import (
    BooleanField,
    DateTimeField,
    F,
    Func,
    IntegerField,
    Model,
    Q,
    TextField,
    Value,
)
from django.db.models.lookups import GreaterThan, LessThan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.db.models.expressions import OrderBy

_M = TypeVar("_M", bound=Model)
_AFTER: Final = "after"
_BEFORE: Final = "before"


class CursorError(ValueError):
    """The cursor is invalid."""


@dataclass(frozen=True, slots=True)
class Order:
    """The fields that decide the order of a list, the last of them unique, all in one direction.

    One direction lets an index serve the order and its reverse, and a comparison of whole rows
    start anywhere in it. The first field may be null if the order `has_missing`: the rows without
    it come last in either direction.
    """

    fields: tuple[str, ...]
    is_descending: bool = True
    has_missing: bool = False

    @property
    def name(self) -> str:
        """The name by which a cursor knows its order."""
        return f"{'-' if self.is_descending else ''}{self.fields[0]}"

    @property
    def parts(self) -> list[tuple[Q, tuple[str, ...]]]:
        """The parts of the list, one after the other, each with the fields that order it."""
        if not self.has_missing:
            return [(Q(), self.fields)]
        first, *others = self.fields
        is_missing = f"{first}__isnull"
        return [(Q(**{is_missing: False}), self.fields), (Q(**{is_missing: True}), tuple(others))]

    @property
    def expressions(self) -> list[OrderBy]:
        """The order of the whole list in one query, for a file."""
        if not self.has_missing:
            return [F(name).desc() if self.is_descending else F(name).asc() for name in self.fields]
        return _terms(self.fields, self.is_descending, missing_first=False)


@dataclass(frozen=True, slots=True)
class Page(Generic[_M]):
    """Rows, and the cursors of the next and the previous page; None at either end."""

    rows: Sequence[_M]
    next_cursor: str | None
    previous_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A position between two rows, beside the row with these values."""

    values: tuple[Any, ...]
    is_before: bool

    def part_of(self, order: Order) -> int:
        return int(order.has_missing and self.values[0] is None)


def read_page(rows: QuerySet[_M], order: Order, cursor: str, size: int) -> Page[_M]:
    """Return at most `size` rows beside `cursor` (empty: the first rows). Raise CursorError if
    invalid."""
    place = _decode(cursor, rows, order) if cursor else None
    found = _read(rows, order, place, size + 1)
    listed, more = found[:size], len(found) > size
    if place and place.is_before:
        if not more:  # the first rows, and what has been added since
            return read_page(rows, order, "", size)
        listed.reverse()
        return Page(listed, _encode(order, _AFTER, listed[-1]), _encode(order, _BEFORE, listed[0]))
    return Page(
        listed,
        _encode(order, _AFTER, listed[-1]) if more else None,
        _encode(order, _BEFORE, listed[0]) if place and listed else None,
    )


def _read(rows: QuerySet[_M], order: Order, place: _Place | None, count: int) -> list[_M]:
    """Return the rows from a place on, in the direction of reading."""
    is_back = place is not None and place.is_before
    is_descending = order.is_descending != is_back
    parts = order.parts
    first = place.part_of(order) if place else 0
    found: list[QuerySet[_M]] = []
    for number in range(first, -1, -1) if is_back else range(first, len(parts)):
        where, fields = parts[number]
        part = rows.filter(where).order_by(*(f"{'-' * is_descending}{name}" for name in fields))
        if place and number == first:
            part = part.filter(_beyond(fields, place.values[-len(fields) :], is_descending))
        found.append(part[:count])
    if len(found) == 1:
        return list(found[0])
    # Each part starts in its index; one question is enough for a page that has rows of both.
    both = found[0].union(*found[1:], all=True)
    return list(both.order_by(*_terms(order.fields, is_descending, missing_first=is_back))[:count])


def _terms(fields: Sequence[str], is_descending: bool, *, missing_first: bool) -> list[OrderBy]:
    """Return an order in which the rows without the first field are together at one end."""
    nulls = {"nulls_first": True} if missing_first else {"nulls_last": True}
    return [F(name).desc(**nulls) if is_descending else F(name).asc(**nulls) for name in fields]


def _beyond(fields: Sequence[str], values: Sequence[Any], is_descending: bool) -> Any:
    # One comparison of whole rows, which an index can start from, also amid many equal values.
    left, right = (
        Func(*terms, function="ROW", output_field=BooleanField())
        for terms in ([F(name) for name in fields], [Value(value) for value in values])
    )
    return LessThan(left, right) if is_descending else GreaterThan(left, right)


def _encode(order: Order, side: str, row: Any) -> str:
    values = (getattr(row, name) for name in order.fields)
    plain = [value.isoformat() if isinstance(value, dt.datetime) else value for value in values]
    return as_cursor([order.name, side, *plain])


def as_cursor(values: Sequence[Any]) -> str:
    """Return values as text for a URL."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def values_of(cursor: str) -> list[Any]:
    """Return what `as_cursor` wrote. Raise ValueError, TypeError or RecursionError."""
    values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    if not isinstance(values, list):
        raise TypeError(cursor)
    return values


def _decode(cursor: str, rows: QuerySet[Any], order: Order) -> _Place:
    try:
        name, side, *values = values_of(cursor)
        if name != order.name or side not in {_AFTER, _BEFORE}:
            raise CursorError(cursor)
        checked = [
            _check(rows, field, value, may_miss=order.has_missing and number == 0)
            for number, (field, value) in enumerate(zip(order.fields, values, strict=True))
        ]
    except (ValueError, TypeError, RecursionError) as error:
        raise CursorError("cursor: not a cursor of this list. Start again without it.") from error
    return _Place(tuple(checked), side == _BEFORE)


def _check(rows: QuerySet[Any], name: str, value: Any, *, may_miss: bool) -> Any:
    """Return the value of a field as PostgreSQL takes it. Raise ValueError or TypeError."""
    if value is None and may_miss:
        return None
    kind = F(name).resolve_expression(rows.query).output_field
    if isinstance(kind, DateTimeField):
        instant = dt.datetime.fromisoformat(value)
        if instant.utcoffset() == dt.timedelta(0):
            return instant
    elif isinstance(kind, IntegerField):
        if type(value) is int and abs(value) < 2**63:
            return value
    elif isinstance(kind, TextField) and isinstance(value, str) and "\0" not in value:
        value.encode()  # half of a surrogate pair is no text
        return value
    raise ValueError(f"not a value of {name}")
