"""glue: the line of totals of a CSV file: the sums of the printed cells.

It is kept while the file is streamed, so that it takes no memory of its own per row.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ipuhub.web.columns import SAME, SUM
from ipuhub.web.filters import TOTAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipuhub.web.columns import Column


def add_up(columns: Sequence[Column]) -> bool:
    """Return whether a file of these columns has a line of totals: a sum, and before it a column
    with room for its name."""
    return any(each.total == SUM for each in columns) and not columns[0].total


class Totals:
    """The line of totals of the rows so far."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._sums: dict[int, Decimal | int] = {}  # 28 digits are exact: no sum comes near
        self._seen: list[set[object]] = [set() for _ in columns]
        self._counted = [
            (number, each.total == SUM, each.unit, self._seen[number])
            for number, each in enumerate(columns)
            if each.total
        ]

    def add(self, row: Any, cells: Sequence[object]) -> None:
        """Count a row, printed as `cells`."""
        sums = self._sums
        for number, is_sum, unit, seen in self._counted:
            cell = cells[number]
            if cell is None:
                continue
            if is_sum:
                amount = cell if isinstance(cell, int) else Decimal(str(cell))
                sums[number] = sums.get(number, 0) + amount
            seen.add((unit(row) if unit else None) if is_sum else cell)

    @property
    def cells(self) -> list[object] | None:
        """The line; None where no row has anything to add. Amounts in several units have no sum."""
        if not self._sums:
            return None
        return [TOTAL, *(self._cell(number) for number in range(1, len(self._columns)))]

    def _cell(self, number: int) -> object:
        seen = self._seen[number]
        if len(seen) != 1:
            return None
        if self._columns[number].total == SAME:
            return next(iter(seen))
        return self._sums[number]
