"""domain: reads the status of a stored IPUJob.

A CRD of another source may have no schema, and others than the operator may write a status.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from ipuhub.fieldrules import CheckedText, FieldReader, Needed, Read
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
_SCALARS: Final = {"string": str, "boolean": bool}


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
    fields, malformed = Read({}) if written is None else _reader().read(written)
    fields = fields or {}
    if not read_carried_fields(fields)[1]:
        malformed += ("status.conditions",)
    if not malformed:
        return StoredStatus(fields, (), fields)
    stored = written if isinstance(written, dict) else {}
    broken = {_FIELD.split(path)[1] for path in malformed if path != "status"}
    return StoredStatus(
        fields=fields,
        malformed=malformed,
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
def _reader() -> FieldReader:
    return FieldReader(_rule_of(status_schema(), "status"), "status")


class _Time(CheckedText):
    """A text that is a time."""

    @staticmethod
    @lru_cache(4096)  # the times of a status hardly change from one write to the next
    def is_valid(text: str) -> bool:
        return parse_time(text) is not None


def _rule_of(schema: Schema, name: str) -> Any:
    kind = schema["type"]
    if kind == "object":
        rules = {field: _rule_of(each, field) for field, each in schema["properties"].items()}
        return rules | {field: Needed(rules[field]) for field in _NEEDED.get(name, ())}
    if kind == "array":
        return [_rule_of(schema["items"], name)]
    if kind == "integer":
        most = _LARGEST[schema["format"]]
        return Annotated[int, Meta(ge=-most if name == _SIGNED else 0, le=most)]
    if kind == "string" and "format" in schema:
        return _Time
    return _SCALARS[kind]
