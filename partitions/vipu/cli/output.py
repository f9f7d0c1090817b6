"""domain: answers as the original's tables, and as JSON and YAML for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMATS: Final = ("table", "wide", "json", "yaml")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under their heads; `wide` columns are shown by `--output wide` only.

    `data` is what JSON and YAML show in its place. `is_bad`: what it shows has failed, and so has
    the command. `is_last`: what it shows has ended, and with it `--watch`. `below`: a second table,
    whose data is part of the first one's.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: Any
    wide: frozenset[str] = frozenset()
    is_bad: bool = False
    is_last: bool = False
    below: Table | None = None


def write(table: Table, form: str) -> str:
    """Return the text of an answer, without a newline at its end."""
    if form == "json":
        return json.dumps(table.data, indent=2, ensure_ascii=False)
    if form == "yaml":
        text: str = yaml.safe_dump(table.data, allow_unicode=True, sort_keys=False)
        return text.rstrip("\n")
    shown = [n for n, head in enumerate(table.heads) if form == "wide" or head not in table.wide]
    heads = [table.heads[n] for n in shown]
    rows = [[plain(row[n]) for n in shown] for row in table.rows]
    widths = [max(len(row[n]) for row in [heads, *rows]) for n in range(len(heads))]
    lines = [" " + " | ".join(_padded(row, widths)) for row in [heads, *rows]]
    rule = "-" * max(len(line) + 1 for line in lines)
    text = "\n".join([lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:]), rule])
    return f"{text}\n\n{write(table.below, form)}" if table.below else text


def facts(values: Mapping[str, str]) -> Table:
    """Return a table of one thing: a line for each fact."""
    return Table(("Attribute", "Value"), list(values.items()), dict(values))


def plain(text: str) -> str:
    """Return a text of a controller without what would steer the terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.ljust(width) for text, width in zip(row, widths, strict=True)]
