"""io: stops a slow sum before it occupies a worker, and a reader, for minutes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import OperationalError, connection
from psycopg.errors import QueryCanceled

from ipuhub.web.filters import BadFilter
from usage.sums.measures import DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def patience(*, bounded: bool) -> Iterator[None]:
    """Let PostgreSQL work on each statement of the transaction around this for USAGE_QUERY_SECONDS
    where it is `bounded`; the limit ends with the transaction.

    Raises BadFilter with the remedy when a statement in here takes longer.
    """
    seconds = settings.USAGE_QUERY_SECONDS
    if not bounded:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(_limit(seconds))
    with _remedy(seconds):
        yield


def rows_of(statement: str, parameters: Mapping[str, Any], *, bounded: bool) -> list[Any]:
    """Return the rows of one SELECT, likewise `bounded`, in one message to PostgreSQL."""
    seconds = settings.USAGE_QUERY_SECONDS
    limit = f"{_limit(seconds)}; " if bounded else ""
    with _remedy(seconds), connection.cursor() as cursor:
        cursor.execute(limit + statement, parameters)
        if limit:
            cursor.nextset()
        rows: list[Any] = cursor.fetchall()
        return rows


def _limit(seconds: int) -> str:
    return f"SET LOCAL statement_timeout = {1000 * seconds}"


@contextmanager
def _remedy(seconds: int) -> Iterator[None]:
    try:
        yield
    except (OperationalError, QueryCanceled) as error:  # of Django's cursor, of psycopg's
        if isinstance(error, QueryCanceled) or isinstance(error.__cause__, QueryCanceled):
            raise BadFilter([_sentence(seconds)]) from error
        raise


def _sentence(seconds: int) -> str:
    known = ", ".join(name for name, each in DIMENSIONS.items() if each.rolled)
    return (
        f"The query was stopped after {seconds} s of adding up individual pods. Request a "
        "shorter range, or one that daily totals cover: whole days of the report zone, in steps "
        f"of a day or longer, by {known}. If such queries are slow, too, run `sum_usage_days`. "
        "An administrator can raise USAGE_QUERY_SECONDS."
    )
