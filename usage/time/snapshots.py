"""io: transactions whose statements all see the same rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connection, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Run all statements in here, or of a function that it decorates, on one state of the rows.

    Within another transaction, as tests have around them, they see what that sees.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    connection.ensure_connection()
    own: psycopg.Connection[Any] = connection.connection
    # Said in the BEGIN itself: SET TRANSACTION would be one more message of each page.
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.read_only = read_only or None
    try:
        with transaction.atomic():
            yield
    finally:
        if not own.closed:
            own.isolation_level = own.read_only = None
