"""io: keeps what could not be taken as it stood, one row for each object and kind of fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from psycopg import Cursor

    from ipuhub.recording.recorder import Fault

LONGEST_EXCERPT: Final = 2_000
# The same fault seen again (a restart, a relist, the next change of the object) is no new one.
_STORE: Final = """
INSERT INTO ipuhub_recordfault AS known
    (watch, uid, namespace, name, code, message, excerpt, count, first_at, last_at)
VALUES (%(watch)s, %(uid)s, %(namespace)s, %(name)s, %(code)s, %(message)s, %(excerpt)s, 1,
    %(at)s, %(at)s)
ON CONFLICT (watch, uid, code) DO UPDATE SET
    namespace = excluded.namespace, name = excluded.name, message = excluded.message,
    excerpt = excluded.excerpt, count = known.count + 1, last_at = excluded.last_at
WHERE (known.message, known.excerpt) IS DISTINCT FROM (excluded.message, excluded.excerpt)
"""


def store(cursor: Cursor[Any], watch: str, faults: Iterable[Fault], at: datetime) -> None:
    """Keep faults of the recorder `watch`; the same again changes nothing."""
    # Of several in one batch the last one stands.
    latest = {(fault.subject.uid, fault.code): fault for fault in faults}
    values = [_values(watch, fault, at) for fault in latest.values()]
    if values:
        cursor.executemany(_STORE, values)


def _values(watch: str, fault: Fault, at: datetime) -> dict[str, Any]:
    subject = fault.subject
    return {
        "watch": watch,
        "uid": storable(subject.uid),
        "namespace": storable(subject.namespace),
        "name": storable(subject.name),
        "code": fault.code,
        "message": storable(fault.message),
        "excerpt": storable(fault.excerpt[:LONGEST_EXCERPT]),
        "at": at,
    }


def storable(text: str) -> str:
    """`text` as Postgres takes it: NUL characters and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
