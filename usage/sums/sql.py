"""domain: the SQL that adds up lifetimes, clipped as in usage/time/intervals.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from usage.rates.heldsql import accelerator_columns, accelerator_counts
from usage.sums.coarsesql import FULL, PARTITIONS, accelerators_of
from usage.sums.measures import LEVELS, POD_SUMS
from usage.sums.partsql import NOTHING, Cell, Summed, part_selects, together
from usage.sums.pieces import PIECE_COLUMNS, PIECE_SUMS
from usage.time.intervals import PARTITION_PIECES, POD_PIECES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usage.sums.parts import Parts
    from usage.sums.prices import Prices

_COUNTED: Final = "count(*) FILTER (WHERE counts)"
_PODS: Final = {
    "pods": Cell(
        "sum(CASE WHEN opens THEN pods ELSE begun END)::bigint",
        "sum(CASE WHEN opens THEN going_pods ELSE 0 END)::bigint",
        _COUNTED,
        "-count(*) FILTER (WHERE counts AND is_over)",
    ),
    **{
        name: Cell(
            f"sum({name})",
            f"sum({LEVELS[name]} * lasting)",
            PIECE_SUMS[name],
            f"-{PIECE_SUMS[name]}",
        )
        for name in POD_SUMS
    },
}
_PARTITIONS: Final = {
    "partitions": Cell(
        "sum(CASE WHEN opens THEN partitions ELSE begun END)::bigint", pieces=_COUNTED
    ),
    "partition_ipu_seconds": Cell("sum(partition_ipu_seconds)", pieces="sum(size * secs)"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """By which SQL expression is grouped, of which rows, with which prices, if any; `named`: the
    parts in which accelerators with a price of their own are looked for."""

    key: str
    where: str
    prices: Prices | None = None
    named: Parts | None = None


def pod_sums(
    asked: Asked, parts: Parts, names: Sequence[str] = POD_SUMS, table: str = FULL
) -> tuple[str, dict[str, Any]]:
    """Return the SELECT of bucket, key, pods, the sums called for and cost, and its parameters.

    `table` has the sums by span, day and hour, with all columns that are needed (`table_of`).
    """
    prices = asked.prices
    keys = {"key": asked.key} | ({"kind": prices.kind} if prices and prices.kind else {})
    accelerators = prices.accelerators if prices and asked.named else []
    own = accelerator_columns(accelerators)
    counted = {name: _PODS[name] for name in ("pods", *names)}
    cells = counted | dict.fromkeys(own, NOTHING)
    summed = Summed(table, keys, asked.where, cells, POD_PIECES, asked.where, PIECE_COLUMNS)
    selects, parameters = part_selects(summed, parts, "p")
    if asked.named and accelerators:
        cells = dict.fromkeys(counted, NOTHING) | _accelerator_cells(own)
        named = Summed(
            accelerators_of(table),
            keys,
            f"({asked.where}) AND accelerator = ANY(%(accelerators)s)",
            cells,
            POD_PIECES,
            f"({asked.where}) AND accelerators ?| %(accelerators)s",
            ", ".join(accelerator_counts(accelerators)),
        )
        more, theirs = part_selects(named, asked.named, "n")
        selects += more
        parameters |= theirs
    statement = together(selects, list(cells), ["bucket", *keys])
    if any(each.after for each in parts.stretches) and "seconds" in names:
        # Who holds nothing after the hour, having ended with it, is not in the range.
        statement += " HAVING sum(pods) <> 0 OR sum(seconds) <> 0"
    if prices is None:
        return _free(statement), parameters
    return prices.of_pods(statement, list(counted)), parameters | prices.parameters


def _accelerator_cells(columns: Sequence[str]) -> dict[str, Cell]:
    """Return the sums of accelerators with a price of their own, by name."""
    found = {}
    for number, column in enumerate(columns):
        its = f"FILTER (WHERE accelerator = %(accelerator_{number})s)"
        held = f"COALESCE(sum({column} * secs), 0)"
        found[column] = Cell(
            f"COALESCE(sum(gpu_seconds) {its}, 0)",
            f"COALESCE(sum(going_gpus * lasting) {its}, 0)",
            held,
            f"-{held}",
        )
    return found


def partition_sums(asked: Asked, parts: Parts) -> tuple[str, dict[str, Any]]:
    """Return the SELECT of bucket, key, partitions, their IPU-seconds and cost, and its
    parameters."""
    names = list(_PARTITIONS)
    summed = Summed(
        PARTITIONS,
        {"key": asked.key},
        asked.where,
        _PARTITIONS,
        PARTITION_PIECES,
        asked.where,
        "size",
    )
    selects, parameters = part_selects(summed, parts, "h")
    statement = together(selects, names, ("bucket", "key"))
    if asked.prices is None:
        return _free(statement), parameters
    return asked.prices.of_partitions(statement, names), parameters | asked.prices.parameters


def _free(statement: str) -> str:
    return f"SELECT *, 0::numeric AS cost FROM ({statement}) AS free"  # noqa: S608


def fold(sums: str, amount: str) -> str:
    """Return the SELECT of bucket, key and `amount` of `sums`, with one NULL key for the small.

    The %(top)s keys with the largest sums keep their name.
    """
    return (
        f"WITH sums AS MATERIALIZED ({sums}), big AS (SELECT key FROM sums GROUP BY key"  # noqa: S608
        f" HAVING sum({amount}) > 0 ORDER BY sum({amount}) DESC, key LIMIT %(top)s)"
        f" SELECT bucket, big.key, sum({amount}) FROM sums LEFT JOIN big USING (key)"
        f" GROUP BY 1, 2 HAVING sum({amount}) > 0"
    )
