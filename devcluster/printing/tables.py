"""domain: objects as `Table`, the format that kubectl requests."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from devcluster.printing.columns import AGE, COLUMNS, CREATED_AT, NAME, Column
from devcluster.printing.podcells import row_conditions
from ipuhub.text import age

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    from devcluster.schemas.kinds import Kind

_INDEX = re.compile(r"\[(\d+)\]")


def find(path: str, obj: Any) -> Any:
    """Return the value at a dotted path with list indexes (`.a.b[0].c`), or None."""
    current = obj
    for part in _INDEX.sub(r".\1", path).strip(".").split("."):
        if isinstance(current, list):
            inside = part.isdigit() and int(part) < len(current)
            current = current[int(part)] if inside else None
        else:
            current = current.get(part) if isinstance(current, dict) else None
    return current


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
        found = find(path, obj)
        return None if found is None else _crd_cell(found, kind, now)

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
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
