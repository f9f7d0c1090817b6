"""glue: the columns of a list that somebody chose in the URL: `?columns=name,ipus`.

They hold for the page and its files. A form without JavaScript repeats the parameter, which says
the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ipuhub.web.filters import BadFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.http import QueryDict

COLUMNS: Final = "columns"
_SAID: Final = 50  # characters of a wrong name


class Named(Protocol):
    """What is needed of a column."""

    @property
    def key(self) -> str:
        """Its name in the URL and in files."""

    @property
    def kind(self) -> str:
        """How it is shown; `export`: in files only."""

    @property
    def label(self) -> str:
        """Its head on the page."""


_C = TypeVar("_C", bound=Named)


@dataclass(frozen=True, slots=True)
class Choice:
    """One column to choose, and whether it is shown."""

    key: str
    label: str
    is_shown: bool


def filters_of(given: QueryDict) -> QueryDict:
    """Return the parameters without the choice of columns, which filters no rows."""
    rest = given.copy()
    rest.pop(COLUMNS, None)
    return rest


def chosen(columns: Sequence[_C], given: QueryDict) -> Sequence[_C]:
    """Return the columns that were chosen, in the order of the list; all if none was. Raises
    BadFilter for a name that is none, and where nothing would be left on the page."""
    names = [name for text in given.getlist(COLUMNS) for name in text.split(",") if name]
    if not names:
        return columns
    known = {column.key for column in columns}
    if wrong := [name for name in names if name not in known]:
        raise BadFilter([_sentence(f"{wrong[0][:_SAID]!r} is no column", columns)])
    found = [column for column in columns if column.key in names]
    if all(column.kind == "export" for column in found):
        raise BadFilter([_sentence("choose at least one that the page shows", _shown(columns))])
    return found


def choices(columns: Sequence[_C], shown: Iterable[_C]) -> list[Choice]:
    """Return what there is to choose from on the page."""
    keys = {column.key for column in shown}
    return [Choice(each.key, each.label, each.key in keys) for each in _shown(columns)]


def _shown(columns: Sequence[_C]) -> list[_C]:
    return [column for column in columns if column.kind != "export"]


def _sentence(what: str, columns: Sequence[Named]) -> str:
    return f"{COLUMNS}: {what}. Valid columns: {', '.join(each.key for each in columns)}."
