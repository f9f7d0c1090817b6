"""domain: output as the original's tables, and as JSON and YAML for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml
from google.protobuf.json_format import MessageToDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

_PREFIXES: Final = (
    *("IRT_", "GRT_", "ST_", "PS_", "POS_"),
    *("DIAGNOSTIC_STATE_", "TEST_KIND_", "OUTCOME_"),
)
FORMATS: Final = ("table", "wide", "json", "yaml")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under their heads; `wide` columns are shown by `--output wide` only.

    `data` replaces it in JSON and YAML. `is_bad`: the operation has failed, and so has the command.
    `is_last`: the operation has ended, and with it `--watch`. `below`: a second table, whose data
    is part of the first table's.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: Any
    wide: frozenset[str] = frozenset()
    is_bad: bool = False
    is_last: bool = False
    below: Table | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The text after "success." of a command without a list, and its facts for programs."""

    text: str = ""
    data: Mapping[str, str] = field(default_factory=dict)


def write(table: Table, form: str) -> str:
    """Return the text of an answer, without a newline at its end."""
    if form == "json":
        return json.dumps(table.data, indent=2, ensure_ascii=False)
    if form == "yaml":
        text: str = yaml.safe_dump(table.data, allow_unicode=True, sort_keys=False)
        return text.rstrip("\n")
    columns = [n for n, head in enumerate(table.heads) if form == "wide" or head not in table.wide]
    heads = [table.heads[n] for n in columns]
    rows = [[plain(row[n]) for n in columns] for row in table.rows]
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


def as_data(message: Message) -> Any:
    """Return a message with the proto's own names, as the original prints it."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def as_time(at: Timestamp) -> str:
    """Return an instant in whole seconds."""
    return at.ToJsonString().partition(".")[0].removesuffix("Z") + "Z"


def as_word(kind: Any, value: int) -> str:
    """Return the name of a value without its prefix, or the number of a value unknown here."""
    try:
        name = str(kind.Name(value))
    except ValueError:
        return str(value)
    return next((name.removeprefix(each) for each in _PREFIXES if name.startswith(each)), name)
