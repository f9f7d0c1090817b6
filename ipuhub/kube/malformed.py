"""domain: the objects that a process read with malformed fields, and how its Lease names them.

Most processes that read objects have no database connection. The page of the components reads
their Leases anyway.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ANNOTATION: Final = "ipuhub.io/malformed-objects"
_MOST: Final = 1000  # objects told apart
_LAST: Final = 5
_MOST_FIELDS: Final = 5
_LONGEST: Final = 400  # characters of an object with its fields: an annotation is not a log


class Malformed(NamedTuple):
    """The number of objects with malformed fields, and the last of them: kind, name, fields."""

    objects: int = 0
    last: tuple[str, ...] = ()


NOTHING: Final = Malformed()


class MalformedObjects:
    """The objects of one client, each once for the same fields."""

    def __init__(self) -> None:
        self._known: set[tuple[str, ...]] = set()
        self._last: deque[str] = deque(maxlen=_LAST)

    def add(self, kind: str, namespace: str, name: str, fields: Sequence[str]) -> bool:
        """Return whether the object is new with these fields; of very many none is."""
        entry = (kind, namespace, name, *fields)
        if entry in self._known or len(self._known) >= _MOST:
            return False
        self._known.add(entry)
        place = f"{namespace}/{name}" if namespace else name or "without a name"
        self._last.append(f"{kind} {place}: {spell_fields(fields)}"[:_LONGEST])
        return True

    @property
    def text(self) -> str:
        """Return the value of the annotation; empty: all objects were well-formed."""
        if not self._known:
            return ""
        return json.dumps({"objects": len(self._known), "last": list(self._last)})


def spell_fields(fields: Sequence[str]) -> str:
    """Return the first fields, and how many more there are."""
    more = len(fields) - _MOST_FIELDS
    return ", ".join(fields[:_MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")


def read_annotation(text: str) -> Malformed:
    """Return what an annotation says; nothing if it is itself malformed."""
    try:
        found = json.loads(text or "{}")
        last = tuple(str(each)[:_LONGEST] for each in list(found["last"])[-_LAST:])
        return Malformed(int(found["objects"]), last)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return NOTHING
