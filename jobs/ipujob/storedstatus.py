"""domain: reads the status of a stored IPUJob.

A CRD of another source may have no schema, and others than the operator may write a status. Fields
of wrong types are dropped here, before anything else reads them, so that no reader has to expect
them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from jobs.ipujob.names import parse_time
from jobs.ipujob.statusfields import status_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.ipujob.names import Manifest
    from jobs.ipujob.statusfields import Schema

CARRIER: Final = "IPUHubRecord"
"""The type of the condition that keeps the operator's own fields where the CRD drops them."""
OWN_FIELDS: Final = ("instances", "partitions", "ipus", "observedGeneration")
UNWRITTEN: Final = {"launcherStatus": "Pending"}
"""The status that the CRD gives a job to which nothing has been written."""
READ_STATUS: Final = "readStatus"
"""The key beside `status` under which a job has its StoredStatus, if fields were dropped."""
_DROPPED: Final = object()
# An entry of a list that lacks one of these says nothing.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "conditions": ("type", "status"),
    "partitions": ("id", "state"),
    "instances": ("index", "attempt"),
}
_FIELD: Final = re.compile(r"[.\[]")
_SIGNED: Final = "exitCode"
# The operator adds to counts and writes them as 32 bits: a larger count could not be written again.
_LARGEST: Final = {"int32": 1_000_000_000, "int64": 2**63 - 1}


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """A status as read: `fields` has what is of the right types, `malformed` the other paths.

    `written` is the status as stored, with null for each field that has a malformed value: `true`
    equals 1 in Python, so the next write would not replace it.
    """

    fields: Manifest
    malformed: tuple[str, ...]
    written: Manifest


def read_status(written: object) -> StoredStatus:
    """Return the status `written` in a job without its malformed fields. Unknown fields stay."""
    if isinstance(written, dict) and _is_whole(written) and read_carried_fields(written)[1]:
        return StoredStatus(written, (), written)
    malformed: list[str] = []
    found = {} if written is None else _read(written, _schema(), "status", malformed)
    fields = {} if found is _DROPPED else found
    if not read_carried_fields(fields)[1]:
        malformed.append("status.conditions")
    stored = written if isinstance(written, dict) else {}
    broken = {_FIELD.split(path)[1] for path in malformed if path != "status"}
    return StoredStatus(
        fields=fields,
        malformed=tuple(malformed),
        written=stored | {name: _blank(stored[name]) for name in broken},
    )


def carrier_of(status: Mapping[str, Any]) -> Manifest | None:
    """Return the condition that carries fields; None: there is none."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == CARRIER:
            found: Manifest = condition
            return found
    return None


def read_carried_fields(status: Mapping[str, Any]) -> tuple[Manifest, bool]:
    """Return the fields in a status's carrier, and whether nothing in it is malformed."""
    carrier = carrier_of(status)
    if carrier is None:
        return {}, True
    try:
        found = json.loads(str(carrier.get("message") or ""))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}, False
    read = read_status({name: found[name] for name in OWN_FIELDS if name in found})
    return read.fields, not read.malformed


def _blank(value: object) -> Manifest | None:
    return dict.fromkeys(value) if isinstance(value, dict) else None


def with_read_status(job: Manifest) -> Manifest:
    """Return the job with its status as read. A status of which nothing is left counts as written:
    the job may have pods of later attempts."""
    read = read_status(job.get("status"))
    if not read.malformed:
        return job
    return job | {"status": read.fields or dict(UNWRITTEN), READ_STATUS: read}


@cache
def _schema() -> Schema:
    return status_schema()


class _Time:
    """A text that is a time, in the types of a status."""


_TIME: Final = _Time()


def _is_whole(status: Manifest) -> bool:
    """Return whether nothing in a status is malformed, in a twentieth of the time of reading it."""
    try:
        msgspec.convert(status, _types(), dec_hook=_time_of)
    except msgspec.ValidationError:
        return False
    return True


def _time_of(_kind: type, value: object) -> _Time:
    if not _is_time(value):
        raise ValueError("no time")
    return _TIME


@cache
def _types() -> Any:
    """Return the schema as types of msgspec, which checks a status in C. Unknown fields pass."""
    return _type_of(_schema(), "status")


def _type_of(schema: Schema, path: str) -> Any:
    kind = schema["type"]
    if kind == "object":
        needed = _NEEDED.get(path, ())
        types = {name: _type_of(each, name) for name, each in schema["properties"].items()}
        fields = [(name, types[name]) for name in needed]
        # A default is not checked: a field that is there has its type, null is no value of it.
        optional = [(name, each, None) for name, each in types.items() if name not in needed]
        return msgspec.defstruct(path, [*fields, *optional], gc=False)
    if kind == "array":
        return list[_type_of(schema["items"], path)]  # type: ignore[misc]
    if kind == "string":
        return _Time if "format" in schema else str
    if kind == "boolean":
        return bool
    least, most = _bounds(schema, path)
    return Annotated[int, msgspec.Meta(ge=least, le=most)]


def _read(value: Any, schema: Schema, path: str, malformed: list[str]) -> Any:
    """Return the value without what is malformed in it, or _DROPPED."""
    kind = schema["type"]
    if kind == "object" and isinstance(value, dict):
        return _read_object(value, schema["properties"], path, malformed)
    if kind == "array" and isinstance(value, list):
        return _read_list(value, schema["items"], path, malformed)
    if _is_scalar(value, schema, path):
        return value
    malformed.append(path)
    return _DROPPED


def _read_object(
    value: Manifest, fields: Mapping[str, Schema], path: str, malformed: list[str]
) -> Manifest:
    kept = {}
    for name, inner in value.items():
        found = inner
        if name in fields:
            found = _read(inner, fields[name], f"{path}.{name}", malformed)
        if found is not _DROPPED:
            kept[name] = found
    return kept


def _read_list(value: list[Any], schema: Schema, path: str, malformed: list[str]) -> list[Any]:
    needed = _NEEDED[path.rpartition(".")[2]]
    kept = []
    for number, entry in enumerate(value):
        place, before = f"{path}[{number}]", len(malformed)
        found = _read(entry, schema, place, malformed)
        if found is _DROPPED:
            continue
        if all(name in found for name in needed):
            kept.append(found)
        elif len(malformed) == before:
            malformed.append(place)
    return kept


def _is_scalar(value: object, schema: Schema, path: str) -> bool:
    """Return whether the value has the type of a schema that is neither an object nor a list."""
    kind = schema["type"]
    if kind == "string":
        return _is_time(value) if "format" in schema else _is_text(value)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind != "integer" or isinstance(value, bool) or not isinstance(value, int):
        return False
    least, most = _bounds(schema, path)
    return least <= value <= most


def _bounds(schema: Schema, path: str) -> tuple[int, int]:
    least = -_LARGEST["int32"] if path.endswith(_SIGNED) else 0
    return least, _LARGEST[schema["format"]]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_time(value: object) -> bool:
    return isinstance(value, str) and _is_readable_time(value)


@lru_cache(4096)  # the times of a status hardly change from one write to the next
def _is_readable_time(text: str) -> bool:
    return parse_time(text) is not None
