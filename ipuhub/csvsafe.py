"""domain: CSV that a spreadsheet shows and never runs, in Python and as SQL.

A text cell that begins with a character which starts a formula gets one leading apostrophe; so
does one that begins with an apostrophe, so that taking one away gives back what went in.
"""

from __future__ import annotations

from typing import Final

GUARDED: Final = "=+-@\t\r'"
"""First characters of a cell that get an apostrophe before them."""


def safe_cell(text: str) -> str:
    """Return `text` as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] and text[0] in GUARDED else text


def plain_text(cell: str) -> str:
    """Return the text that `safe_cell` made `cell` of."""
    return cell[1:] if cell[:1] == "'" else cell


def safe_cell_sql(expression: str) -> str:
    """Return SQL that does to a text expression what `safe_cell` does, for COPY ... (FORMAT csv).

    An empty text becomes NULL, which COPY writes as an empty cell without quotes. Guarded
    characters all sort before `A`: one comparison settles the usual name.
    """
    return (
        f"CASE WHEN {expression} COLLATE \"C\" < 'A' AND left({expression}, 1) IN"
        f" ('=', '+', '-', '@', E'\\t', E'\\r', '''') THEN '''' || {expression}"
        f" ELSE NULLIF({expression}, '') END"
    )
