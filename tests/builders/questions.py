"""What PostgreSQL is asked for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from django.test.utils import CaptureQueriesContext

# The marks of a transaction are no questions: they read nothing.
_MARKS: Final = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT")


def questions(captured: CaptureQueriesContext) -> int:
    """Return how many statements were sent, but for those that begin or end a transaction."""
    return sum(not query["sql"].startswith(_MARKS) for query in captured.captured_queries)
