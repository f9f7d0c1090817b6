"""glue: the columns of a list, and those chosen in the URL: `?columns=name,ipus`.

The choice holds for the page and its files. A form without JavaScript repeats the parameter, which
means the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ipuhub.web.filters import BadFilter, Mistake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.http import QueryDict

COLUMNS: Final = "columns"
SUM: Final = "sum"
SAME: Final = "same"
"""Content of the line of totals: the sum of the column, or the common value of its cells."""
WIDEST: Final = 1600
_SAID: Final = 50  # characters of a wrong name


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `key` in CSV and JSON, `label` on the page, `value` from a row.

    `shown`: shown on the page instead of the value. `sparse`: hidden on pages where it would show
    nothing in any row. `sort`: the name of the order by this column. `phone`: its line and place on
    a phone, `1.1` to `2.3`; a list with such columns shows no others there.

    `room`: from which width of the page on it is shown, if no columns are chosen: 992, 1200 or 1600
    pixels, as ipuhub.css has them; 0: at any, as for identifying columns. `gives_way_to`: the key
    of a column beside which it needs the widest page.

    `total`: SUM or SAME, in files. `unit` of a row: only amounts in one unit are added up.
    """

    key: str
    label: str
    value: Callable[[Any], object]
    kind: str = "text"
    link: Callable[[Any], str] | None = None
    rendered: Callable[[Any], object] | None = None
    sparse: bool = False
    sort: str = ""
    phone: str = ""
    room: int = 0
    gives_way_to: str = ""
    total: str = ""
    unit: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One column to choose, and whether it is shown; `room` as of the column."""

    key: str
    label: str
    is_shown: bool
    room: int = 0


def file_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of a file: each has an attribute of the row, under its name."""
    return tuple(Column(name, "", attrgetter(name), kind="export") for name in names)


def filters_of(given: QueryDict) -> QueryDict:
    """Return the parameters without the choice of columns, which filters no rows."""
    rest = given.copy()
    rest.pop(COLUMNS, None)
    return rest


def chosen_columns(columns: Sequence[Column], given: QueryDict) -> Sequence[Column]:
    """Return the columns that were chosen, in the order of the list; all if none was. Raises
    BadFilter for a name that is none, and where nothing would be left on the page."""
    names = [name for text in given.getlist(COLUMNS) for name in text.split(",") if name]
    if not names:
        return columns
    known = {column.key for column in columns}
    if wrong := [name for name in names if name not in known]:
        raise BadFilter(_mistake(f"{wrong[0][:_SAID]!r} is no column", columns))
    found = [column for column in columns if column.key in names]
    if all(column.kind == "export" for column in found):
        what = "choose at least one column that the page shows"
        raise BadFilter(_mistake(what, _shown(columns)))
    return found


def choices(columns: Sequence[Column], current: Iterable[Column]) -> list[Choice]:
    """Return the columns to choose from on the page."""
    keys = {column.key for column in current}
    return [Choice(each.key, each.label, each.key in keys, each.room) for each in _shown(columns)]


def columns_of(columns: Sequence[Column], rows: Sequence[Any]) -> list[Column]:
    """Return the columns that a page of these rows shows."""
    found = [
        each
        for each in _shown(columns)
        if not each.sparse or any(_shows(each, row) for row in rows)
    ]
    keys = {each.key for each in found}
    return [replace(each, room=WIDEST) if each.gives_way_to in keys else each for each in found]


def _shown(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.kind != "export"]


def _shows(column: Column, row: Any) -> bool:
    return (column.rendered or column.value)(row) not in (None, "")


def _mistake(what: str, columns: Sequence[Column]) -> Mistake:
    keys = ", ".join(each.key for each in columns)
    return Mistake(COLUMNS, f"{what}. Valid columns: {keys}.")
