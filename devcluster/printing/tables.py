r"""domain: objects as the `Table` that kubectl asks for.

The JSONPath of printer columns and scale subresources.

Members (`.a`, `.a\.b`, `['a']`), indexes, slices, `[*]` and filters `[?(@.type=="Ready")]`.
"""

from __future__ import annotations

import json
import operator
import re
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from devcluster.printing.columns import AGE, COLUMNS, CREATED_AT, NAME, Column
from devcluster.printing.podcells import row_conditions
from ipuhub.text import age

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from devcluster.schemas.kinds import Kind

_MEMBER = re.compile(r"\.((?:\\.|[^.\[\\])+)")
_QUOTED = re.compile(r"\[\s*(?:'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\")\s*\]")
_SLICE = re.compile(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")
_INDEX = re.compile(r"\[\s*(-?\d+)\s*\]")
_ALL = re.compile(r"\[\s*\*\s*\]|\.\*")
_FILTER = re.compile(r"\[\?\(\s*@(.*?)\s*(==|!=|>=|<=|>|<)\s*(.*?)\s*\)\]")
_EXISTS = re.compile(r"\[\?\(\s*@([^=<>!]*?)\s*\)\]")


class JsonPathError(ValueError):
    """A path that cannot be read; the message quotes what stands at the fault."""


def find(path: str, obj: Any) -> list[Any]:
    """Every value at `path`, in order; empty where nothing is. Raises JsonPathError."""
    found = [obj]
    for step in _compile(path):
        found = [value for parent in found for value in step(parent)]
    return found


@lru_cache(maxsize=1024)
def _compile(path: str) -> tuple[Callable[[Any], list[Any]], ...]:
    rest = path.strip()
    if rest.startswith("{") and rest.endswith("}"):
        rest = rest[1:-1].strip()
    rest = rest.removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[Callable[[Any], list[Any]]] = []
    while rest:
        if rest == ".":
            break
        step, length = _first_step(rest)
        steps.append(step)
        rest = rest[length:]
    return tuple(steps)


def _first_step(text: str) -> tuple[Callable[[Any], list[Any]], int]:
    for pattern, make_step in _SYNTAX:
        if match := pattern.match(text):
            return make_step(match), match.end()
    raise JsonPathError(f"cannot read the JSONPath at {text!r}")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _member(name: str, value: Any) -> list[Any]:
    return [value[name]] if isinstance(value, dict) and name in value else []


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _slice(part: slice, value: Any) -> list[Any]:
    return value[part] if isinstance(value, list) else []


def _index(at: int, value: Any) -> list[Any]:
    inside = isinstance(value, list) and -len(value) <= at < len(value)
    return [value[at]] if inside else []


def _filter(left: str, relation: str, right: str, value: Any) -> list[Any]:
    return [item for item in _children(value) if _holds(find(left, item), relation, right, item)]


def _holds(left: list[Any], relation: str, right: str, item: Any) -> bool:
    if not relation:
        return bool(left)
    wanted = find(right[1:], item) if right.startswith("@") else [_literal(right)]
    if not left or not wanted:
        return False
    have, want = left[0], wanted[0]
    if relation in {"==", "!="}:
        return bool((have == want) == (relation == "=="))
    try:
        return bool(_COMPARISONS[relation](have, want))
    except TypeError:
        return False


def _literal(text: str) -> Any:
    if text[:1] == text[-1:] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _slice_bounds(match: re.Match[str]) -> slice:
    start, stop = (int(part) if part else None for part in match.groups())
    return slice(start, stop)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
)
_SYNTAX: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Callable[[Any], list[Any]]]], ...]
_SYNTAX = (
    (_ALL, lambda _match: _children),
    (_MEMBER, lambda match: partial(_member, _unescape(match[1]))),
    (_QUOTED, lambda match: partial(_member, _unescape(match[1] or match[2] or ""))),
    (_SLICE, lambda match: partial(_slice, _slice_bounds(match))),
    (_INDEX, lambda match: partial(_index, int(match[1]))),
    (_FILTER, lambda match: partial(_filter, match[1], match[2], match[3])),
    (_EXISTS, lambda match: partial(_filter, match[1], "", "")),
)
_NAME_TEXT = (
    "Name must be unique within a namespace. Is required when creating resources, although some "
    "resources may allow a client to request the generation of an appropriate name automatically. "
    "Name is primarily intended for creation idempotence and configuration definition. Cannot be "
    "updated."
)
_AGE_TEXT = (
    "CreationTimestamp is a timestamp representing the server time when this object was created."
)
_TYPED: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def as_table(
    resource: Kind,
    objects: Iterable[Mapping[str, Any]],
    crd_columns: Sequence[Mapping[str, Any]] | None,
    now: dt.datetime,
) -> dict[str, Any]:
    """The Table of `objects`; rows have cells and conditions, the caller adds `object`.

    `crd_columns` are a CRD's additionalPrinterColumns; a CRD without any shows the age.
    """
    columns = _columns_of(resource, crd_columns or ())
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(resource, obj, columns, now) for obj in objects],
    }


def _columns_of(resource: Kind, crd_columns: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    if crd_columns:
        return (NAME, *(_crd_column(column) for column in crd_columns))
    known = COLUMNS.get(resource.resource_name)
    if known is not None:
        return known
    # The server gives the age of a custom resource as a date column that is already humanised.
    return (NAME, Column("Age", AGE.cell, "date", description=_AGE_TEXT))


def _definition(column: Column) -> dict[str, Any]:
    text = column.description
    if column.format == "name":
        text = _NAME_TEXT
    elif not text and column.name in {AGE.name, CREATED_AT.name}:
        text = _AGE_TEXT
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": text,
        "priority": column.priority,
    }


def _row(
    resource: Kind, obj: Mapping[str, Any], columns: tuple[Column, ...], now: dt.datetime
) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in columns]}
    conditions = row_conditions(obj) if resource.resource_name == "pods" else []
    return {**row, "conditions": conditions} if conditions else row


def _crd_column(column: Mapping[str, Any]) -> Column:
    path, kind = column["jsonPath"], column["type"]

    def cell(obj: Mapping[str, Any], now: dt.datetime) -> Any:
        try:
            found = find(path, obj)
        except JsonPathError:
            return None
        return _crd_cell(found[0], kind, now) if found else None

    text = column.get("description") or (
        f"Custom resource definition column (in JSONPath format): {path}"
    )
    priority, format_ = column.get("priority", 0), column.get("format", "")
    return Column(column["name"], cell, kind, priority, format_, text)


def _crd_cell(value: Any, kind: str, now: dt.datetime) -> Any:
    if kind == "string":
        return _text(value)
    if kind == "date":
        return age(value, now) if isinstance(value, str) and value else None
    fits = isinstance(value, _TYPED[kind]) and (kind == "boolean") == isinstance(value, bool)
    return value if fits else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
