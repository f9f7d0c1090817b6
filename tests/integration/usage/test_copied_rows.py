"""Rows that leave by COPY and come back by COPY are the rows that the SELECT made."""

from __future__ import annotations

import psycopg
import pytest

from usage.reports.downloads import own_connection
from usage.sums.refill import copy_rows

pytestmark = pytest.mark.django_db
_ODD = [
    "",
    " ",
    "NULL",
    "\\N",
    "\\.",
    'a "quoted", name',
    "two\r\nlines",
    "tab\t",
    "ünï\u202e",
    "x" * 9000,
]


def test_texts_nulls_and_large_numbers_arrive_as_they_left_and_in_order() -> None:
    with own_connection() as own:
        own.execute(
            "CREATE TEMP TABLE target (id serial, text text, number numeric) ON COMMIT DROP"
        )
        query = (
            "SELECT t, CASE WHEN t <> '' THEN n * (2::numeric ^ 90 + 1) END"
            " FROM unnest(%(texts)s::text[]) WITH ORDINALITY AS given (t, n) ORDER BY n"
        )
        copy_rows(own, query, {"texts": _ODD}, "target (text, number)")
        rows = own.execute("SELECT text, number FROM target ORDER BY id").fetchall()
        own.rollback()
    assert [text for text, _ in rows] == _ODD
    assert [number for _, number in rows] == [None, *((n + 1) * (2**90 + 1) for n in range(1, 10))]


def test_nothing_is_left_behind_by_a_query_that_fails() -> None:
    with own_connection() as own:
        own.execute("CREATE TEMP TABLE target (number int)")
        query = "SELECT 10 / (3 - n) FROM generate_series(1, 3) AS n"
        with pytest.raises(psycopg.Error):
            copy_rows(own, query, {}, "target (number)")
        own.rollback()
        assert own.execute("SELECT to_regclass('target')").fetchone() == (None,)
