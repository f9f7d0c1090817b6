"""domain: CSV that a spreadsheet shows and never runs, in Python and as SQL.

A text cell that begins with a character which starts a formula gets one leading apostrophe; so
does one that begins with an apostrophe, so that taking one away gives back what went in. Quoting
is RFC 4180's and minimal, lines end with LF.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

GUARDED: Final = "=+-@\t\r'"
"""First characters of a cell that get an apostrophe before them."""

_NEEDS_QUOTES: Final = frozenset(',"\r\n')


def guard(text: str) -> str:
    """Return `text` as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] and text[0] in GUARDED else text


def unguard(cell: str) -> str:
    """Return the text that `guard` made `cell` of."""
    return cell[1:] if cell[:1] == "'" else cell


def csv_line(cells: Iterable[str | int | float | None]) -> str:
    """Return one line of CSV: texts are guarded, numbers are not, None is an empty cell."""
    texts = (guard(c) if isinstance(c, str) else "" if c is None else str(c) for c in cells)
    return ",".join(map(_quoted, texts)) + "\n"


def _quoted(cell: str) -> str:
    # The csv module's minimal quoting leaves a CR bare when lines end with LF.
    if _NEEDS_QUOTES.isdisjoint(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def guarded_sql(expression: str) -> str:
    """Return SQL that does to a text expression what `guard` does, for COPY ... (FORMAT csv).

    An empty text becomes NULL, which COPY writes as an empty cell without quotes. Guarded
    characters all sort before `A`: one comparison settles the usual name.
    """
    return (
        f"CASE WHEN {expression} COLLATE \"C\" < 'A' AND left({expression}, 1) IN"
        f" ('=', '+', '-', '@', E'\\t', E'\\r', ) THEN  || {expression}"
        f" ELSE NULLIF({expression}, '') END"
    )
