"""io: the SQL that computes sums: of days and hours from lifetimes, of spans from days.

PostgreSQL runs the SELECT of an INSERT in one process, but the SELECT of a COPY in several. So rows
leave by COPY, wait in a file (a connection does one thing at a time), and return by COPY. They are
few compared with the rows that they sum up.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, Final

from usage.reports.csv import BLOCK_BYTES, copy_csv
from usage.sums.measures import LEVELS, POD_SUMS
from usage.sums.pieces import (
    COARSE,
    FULL,
    GROUP,
    HOURLY,
    KEPT,
    PARTITION_KIND,
    PARTITIONS,
    PIECE_COLUMNS,
    PIECE_SUMS,
    PODS,
    accelerators_of,
    pieces,
)
from usage.time.windows import PARTITION_PIECES, POD_PIECES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

_GOING: Final = "finished_at IS NULL OR finished_at >= b.ends AS going"
_LEVEL_SUMS: Final = {
    "going_pods": "count(*) FILTER (WHERE going)",
    "going_estimated": "count(*) FILTER (WHERE going AND estimated)",
    "going_unverified": "count(*) FILTER (WHERE going AND NOT user_verified)",
    "going_millicores": "COALESCE(sum(cpu_millicores) FILTER (WHERE going), 0)",
    "going_bytes": "COALESCE(sum(memory_bytes) FILTER (WHERE going), 0)",
    "going_gpus": "COALESCE(sum(gpus) FILTER (WHERE going), 0)",
    "going_micro_ipus": "COALESCE(sum(micro_ipus) FILTER (WHERE going), 0)",
}
_ACCELERATOR_SUMS: Final = {"gpu_seconds": "sum(amount::numeric * secs)"}
_ACCELERATOR_LEVELS: Final = {"going_gpus": "sum(amount::numeric * going_pods)"}
_KINDS: Final = {"day": "date", "hour": "timestamptz"}
_KIND: Final = KEPT[0]
_SIZES: Final = 'namespace, "group", size'


def _columns(table: str) -> str:
    return ", ".join(f'"{name}"' for name in (PODS | HOURLY)[table])


def _refill_pods(table: str, grain: str) -> str:
    sums = PIECE_SUMS | (_LEVEL_SUMS if grain == "hour" else {})
    columns = _columns(table)
    held = pieces(POD_PIECES, f"{columns}, {PIECE_COLUMNS}, {_GOING}", "true", "s")
    return (
        f"INSERT INTO {table}{grain} ({grain}, {columns}, pods, begun, {', '.join(sums)})"  # noqa: S608
        f" SELECT (%(times)s::{_KINDS[grain]}[])[bucket + 1] AS time, {columns}, count(*),"
        f" count(*) FILTER (WHERE begun), {', '.join(sums.values())} FROM ({held}) AS pieces"
        f" GROUP BY time, {columns} ORDER BY time"
    )


def _refill_accelerators(table: str, grain: str) -> str:
    """Return the INSERT of what pods held of each accelerator. Few pods differ in which they have:
    seconds are added up first, and names taken apart then."""
    sums = _ACCELERATOR_SUMS | (_ACCELERATOR_LEVELS if grain == "hour" else {})
    columns = _columns(table)
    held = pieces(POD_PIECES, f"{columns}, accelerators, {_GOING}", "accelerators <> '{}'", "s")
    together = (
        f"SELECT (%(times)s::{_KINDS[grain]}[])[bucket + 1] AS time, {columns}, accelerators,"  # noqa: S608
        f" sum(secs) AS secs, count(*) FILTER (WHERE going) AS going_pods FROM ({held}) AS pieces"
        f" GROUP BY time, {columns}, accelerators"
    )
    return (
        f"INSERT INTO {accelerators_of(table)}{grain}"  # noqa: S608
        f" ({grain}, {columns}, accelerator, {', '.join(sums)})"
        f" SELECT time, {columns}, name, {', '.join(sums.values())} FROM ({together}) AS held"
        " CROSS JOIN LATERAL jsonb_each_text(accelerators) AS one (name, amount)"
        f" GROUP BY time, {columns}, name ORDER BY time"
    )


def _refill_partitions(table: str, columns: str, grain: str) -> str:
    held = pieces(PARTITION_PIECES, columns, "true", "s")
    return (
        f"INSERT INTO {table}{grain} ({grain}, {columns}, partitions, begun,"  # noqa: S608
        f" partition_ipu_seconds) SELECT (%(times)s::{_KINDS[grain]}[])[bucket + 1] AS time,"
        f" {columns}, count(*), count(*) FILTER (WHERE begun), sum(size::numeric * secs)"
        f" FROM ({held}) AS pieces GROUP BY time, {columns} ORDER BY time"
    )


def _refill_coarse(table: str, grain: str, full: str = FULL) -> tuple[str, ...]:
    """Return the INSERTs that make the sums of `times` from the finer sums of `full`."""
    own = ("pods", "begun", *POD_SUMS, *(LEVELS.values() if grain == "hour" else ()))
    named = ("gpu_seconds", *(("going_gpus",) if grain == "hour" else ()))

    columns, by_name = _columns(table), f"{_columns(table)}, accelerator"
    return (
        _summed_up(f"{table}{grain}", f"{full}{grain}", grain, columns, own),
        _summed_up(
            f"{accelerators_of(table)}{grain}",
            f"{accelerators_of(full)}{grain}",
            grain,
            by_name,
            named,
        ),
    )


def _summed_up(into: str, source: str, grain: str, columns: str, sums: Sequence[str]) -> str:
    return (
        f"INSERT INTO {into} ({grain}, {columns}, {', '.join(sums)})"  # noqa: S608
        f" SELECT {grain}, {columns}, {', '.join(f'sum({name})' for name in sums)}"
        f" FROM {source} WHERE {grain} = ANY(%(times)s::{_KINDS[grain]}[])"
        f" GROUP BY {grain}, {columns} ORDER BY {grain}"
    )


def _refill_span(table: str, columns: str, count: str, sums: tuple[str, ...]) -> str:
    """Return the INSERT that makes the sums of the spans from `spans` to before `ends` from the
    sums of their days. A lifetime in a span existed on its first day, or began on a later day."""
    counts = (count, "begun") if count else ()
    first = [f"sum(CASE WHEN day = span THEN {count} ELSE begun END)", "sum(begun)"]
    cells = [*(first if count else ()), *(f"sum({name})" for name in sums)]
    return (
        f"INSERT INTO {table}span (span, {columns}, {', '.join((*counts, *sums))})"  # noqa: S608
        f" SELECT span, {columns}, {', '.join(cells)}"
        " FROM unnest(%(spans)s::date[], %(ends)s::date[]) AS each (span, ends)"
        f" JOIN {table}day ON day >= span AND day < ends GROUP BY span, {columns} ORDER BY span"
    )


def _refill(grain: str) -> tuple[str, ...]:
    coarse = (each for table in COARSE for each in _refill_coarse(table, grain))
    return (
        _refill_pods(FULL, grain),
        _refill_accelerators(FULL, grain),
        _refill_partitions(PARTITIONS, f'{_SIZES}, "user"', grain),
        *coarse,
    )


_BY_GROUP: Final = _refill_coarse(GROUP, "hour", _KIND)
_BY_SIZE: Final = _summed_up(
    f"{PARTITION_KIND}hour",
    f"{PARTITIONS}hour",
    "hour",
    _SIZES,
    ("partitions", "begun", "partition_ipu_seconds"),
)
REFILL: Final = {"day": _refill("day"), "hour": (*_refill("hour"), *_BY_GROUP, _BY_SIZE)}
"""Sums an unbroken run of days or hours anew: a stretch `s`, a bucket for each of `times`."""
REFILL_KEPT: Final = (
    _refill_pods(_KIND, "hour"),
    _refill_accelerators(_KIND, "hour"),
    _refill_partitions(PARTITION_KIND, _SIZES, "hour"),
    *_BY_GROUP,
)
"""Likewise, for the tables that keep their hours alone: from lifetimes, as there are no full sums
of hours before today's."""
REFILL_SPANS: Final = (
    *(_refill_span(table, _columns(table), "pods", POD_SUMS) for table in PODS),
    *(
        _refill_span(
            accelerators_of(table), f"{_columns(table)}, accelerator", "", ("gpu_seconds",)
        )
        for table in PODS
    ),
    _refill_span(
        PARTITIONS, 'namespace, "group", "user", size', "partitions", ("partition_ipu_seconds",)
    ),
)
"""Sums spans of days anew; of days that are summed."""
KEPT_TABLES: Final = (
    *(f"{table}hour" for each in KEPT for table in (each, accelerators_of(each))),
    f"{PARTITION_KIND}hour",
)
"""The tables that keep their hours."""
_EACH: Final = (*PODS, *map(accelerators_of, PODS), PARTITIONS)
TODAY_TABLES: Final = tuple(f"{table}hour" for table in _EACH if f"{table}hour" not in KEPT_TABLES)
"""The tables that have the hours of today alone."""
TABLES: Final = {
    "span": tuple(f"{table}span" for table in _EACH),
    "day": tuple(f"{table}day" for table in _EACH),
    "hour": (*TODAY_TABLES, *KEPT_TABLES),
}
"""The tables that these fill."""


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
