"""io: puts what a SELECT makes into a table, with the processors that an INSERT would leave idle.

PostgreSQL runs the SELECT of an INSERT in one process, that of a COPY in several. So rows leave
by COPY, wait in a file, since a connection does one thing, and come back by COPY: few and small
beside what they are sums of.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from usage.reports.csv import BLOCK_BYTES, copy_csv

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg


def copy_rows(
    connection: psycopg.Connection[Any],
    query: str,
    parameters: Mapping[str, Any],
    target: str,
) -> None:
    """Append the rows of `query`, in order, to `target`: a table with its columns in brackets.

    In the transaction of `connection`, in constant memory. Raises psycopg.Error.
    """
    with tempfile.TemporaryFile() as spool:
        for block in copy_csv(connection, query, parameters):
            spool.write(block)
        spool.seek(0)
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy,
        ):
            while block := spool.read(BLOCK_BYTES):
                copy.write(block)
