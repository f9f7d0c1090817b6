"""The queries that PostgreSQL receives for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from django.test.utils import CaptureQueriesContext

# The marks of a transaction and the limit of its time are no questions: they read nothing.
_MARKS: Final = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT", "SET LOCAL")


def count_queries(captured: CaptureQueriesContext) -> int:
    """Return how many messages were sent that ask for rows."""
    return sum(not _is_mark(query["sql"]) for query in captured.captured_queries)


def _is_mark(sql: str) -> bool:
    return sql.startswith(_MARKS) and ";" not in sql
