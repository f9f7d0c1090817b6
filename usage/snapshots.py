"""io: transactions whose statements all see the same rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connection, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Run all statements in here, or of a function that it decorates, on one state of the rows.

    Within another transaction, as tests have around them, they see what that sees.
    """
    with transaction.atomic():
        if not connection.savepoint_ids:
            access = " READ ONLY" if read_only else ""
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{access}")
        yield
