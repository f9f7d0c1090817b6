"""glue: the cells of a list, and the colour of each state in every badge and chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipuhub.web.columns import Column

COLOURS = {
    "Running": "green",
    "Completed": "blue",
    "Succeeded": "blue",
    "Failed": "red",
    "Pending": "yellow",
    "Restarting": "orange",
    "Suspended": "secondary",
    "Stopped": "secondary",
    "Deleted": "secondary",
    "active": "green",
    "error": "red",
    "creating": "yellow",
    "reserving": "yellow",
    "waiting": "yellow",
    "releasing": "orange",
    "released": "secondary",
    "accepted": "green",
    "refused": "red",
    "unknown": "yellow",
    "sent": "orange",
}
_SHORT_LINK, _SHORT_TEXT = 32, 20  # characters
_LOOKS = {
    "number": "text-sm-end text-nowrap",
    "note": "text-secondary message",
    "brief": "text-secondary message brief",
    "log": "log",
    **dict.fromkeys(("age", "ago", "duration", "time", "second"), "text-nowrap"),
}


def colour_of(state: str) -> str:
    """Return the Tabler colour of a state; grey for an unknown state."""
    return COLOURS.get(state, "secondary")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the table."""

    value: object
    kind: str
    label: str
    href: str = ""
    colour: str = ""
    phone: str = ""
    room: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to show."""
        return self.value is None or self.value == ""

    @property
    def look(self) -> str:
        """CSS classes of the cell."""
        place = f"at-{self.phone.replace('.', '-')}" if self.phone else ""
        room = f"from-{self.room}" if self.room else ""
        return " ".join(filter(None, (self._kind_look, place, room)))

    @property
    def _kind_look(self) -> str:
        if self.is_empty:
            return "is-empty text-sm-end" if self.kind == "number" else "is-empty"
        if self.kind == "text":
            return "whole" if self.is_short else ""
        return _LOOKS.get(self.kind, "")

    @property
    def is_short(self) -> bool:
        """Return whether the text fits on one line; the main column has more room."""
        return len(str(self.value)) <= (_SHORT_LINK if self.href else _SHORT_TEXT)


def make_cells(columns: Sequence[Column], row: Any) -> list[Cell]:
    """Return the cells of one row."""
    return [_cell(column, row) for column in columns]


def _cell(column: Column, row: Any) -> Cell:
    value = (column.rendered or column.value)(row)
    href = column.link(row) if column.link else ""
    colour = colour_of(str(value)) if column.kind == "badge" else ""
    return Cell(value, column.kind, column.label, href, colour, column.phone, column.room)
