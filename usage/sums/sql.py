"""domain: the SQL that adds up lifetimes, clipped as in usage/time/windows.py.

Also the SELECTs that add up a window in its parts (sums where they are valid, else lifetimes) and
the SQL that joins sums of pods and of partitions, page by page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from usage.sums.measures import LEVELS, NAMES, POD_SUMS, accelerator_columns, accelerator_counts
from usage.sums.pieces import PIECE_COLUMNS, PIECE_SUMS, pieces, stretch_parameters
from usage.time.windows import PARTITION_PIECES, POD_ENDS, POD_PARTS, POD_PIECES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from usage.sums.parts import Parts, Rolled, Stretch
    from usage.sums.pieces import Prices, Tables


@dataclass(frozen=True, slots=True)
class Cell:
    """SQL of one sum: of rows that are summed (`opens`: a step begins with this row), of amounts
    held as an hour ended (for `lasting` seconds), of pieces of lifetimes, and of pieces that are
    taken off since their pods no longer hold anything (`is_over`: from the beginning)."""

    rolled: str
    level: str = ""
    pieces: str = ""
    ended: str = ""


NOTHING: Final = Cell("0::numeric", "0::numeric", "0::numeric", "0::numeric")


@dataclass(frozen=True, slots=True)
class Summed:
    """The sums and their names: from tables of sums by expressions for the `keys`, `where` a row of
    them is meant; from lifetimes of `source`, `source_where`, with these columns of theirs."""

    tables: Tables
    keys: Mapping[str, str]
    where: str
    cells: Mapping[str, Cell]
    source: str
    source_where: str
    source_columns: str

    @property
    def columns(self) -> str:
        """SQL of the keys."""
        return ", ".join(f"{sql} AS {name}" for name, sql in self.keys.items())

    def listed(self, kind: str) -> str:
        """Return SQL of the sums, each under its name."""
        return ", ".join(f"{getattr(each, kind)} AS {name}" for name, each in self.cells.items())


def part_selects(summed: Summed, parts: Parts, name: str) -> tuple[list[str], dict[str, Any]]:
    """Return SELECTs of bucket, keys and sums, and their parameters, which begin with `name`."""
    selects: list[str] = []
    parameters: dict[str, Any] = {}
    for grain, kind, taken in parts.rolled:
        if taken:
            single = len({each.bucket for each in taken}) == len(taken)
            selects.append(_rolled_sums(summed, grain, kind, f"{name}_{grain}", single=single))
            parameters |= _rolled_parameters(f"{name}_{grain}", taken)
    for number, stretch in enumerate(parts.stretches):
        own = f"{name}_{number}"
        selects += _stretch_sums(summed, stretch, own)
        parameters |= stretch_parameters(own, stretch)
    return selects, parameters


def together(selects: Sequence[str], names: Sequence[str], keys: Sequence[str]) -> str:
    """Return the sum of all `selects`, each of which has a row for each value of the keys."""
    if len(selects) == 1:
        return united(selects, names, keys)
    by, sums = ", ".join(keys), ", ".join(f"sum({name}) AS {name}" for name in names)
    return (
        f"SELECT {by}, {sums} FROM ({united(selects, names, keys)}) AS parts"  # noqa: S608
        f" GROUP BY {ordinals(len(keys))}"
    )


def united(selects: Sequence[str], names: Sequence[str], keys: Sequence[str]) -> str:
    """Return the rows of all `selects`, under these names."""
    listed = ", ".join([*keys, *names])
    return f"SELECT * FROM ({' UNION ALL '.join(selects)}) AS united ({listed})"  # noqa: S608


def ordinals(count: int) -> str:
    """Return what groups by the first `count` columns."""
    return ", ".join(str(n + 1) for n in range(count))


def _rolled_sums(summed: Summed, grain: str, kind: str, name: str, *, single: bool) -> str:
    """Return a SELECT from sums of this grain, bucket by bucket: grouped by buckets at once the
    planner would expect as many groups as rows, and sort them all on disk.

    `single`: each bucket has one time. Of an array the planner would expect ten, and compile a
    query that seems long (JIT).
    """
    times = f"{grain} = ANY((SELECT (%({name}_times)s::{kind}[])[b.low:b.high])::{kind}[])"
    if single:
        times = f"{grain} = b.time"
    rows = (
        f"SELECT *, {grain} = b.opening AS opens FROM {summed.tables.of(grain)}"  # noqa: S608
        f" WHERE {times} AND {summed.where}"
    )
    return (
        f"SELECT b.bucket, held.* FROM unnest(%({name}_numbers)s::int[],"  # noqa: S608
        f" %({name}_openings)s::{kind}[], %({name}_lows)s::int[], %({name}_highs)s::int[],"
        f" %({name}_firsts)s::{kind}[]) AS b (bucket, opening, low, high, time) CROSS JOIN LATERAL"
        f" (SELECT {summed.columns}, {summed.listed('rolled')} FROM ({rows}) AS rows"
        f" GROUP BY {ordinals(len(summed.keys))}) AS held"
    )


def _rolled_parameters(name: str, taken: Sequence[Rolled]) -> dict[str, Any]:
    times = [each.time.isoformat() for each in taken]
    openings = dict.fromkeys((each.bucket for each in taken), "NULL")
    openings |= {each.bucket: at for each, at in zip(taken, times, strict=True) if each.opens}
    highs = {each.bucket: number for number, each in enumerate(taken, 1)}
    lows = [1, *(high + 1 for high in list(highs.values())[:-1])]
    return {
        f"{name}_times": _as_array(times),
        f"{name}_numbers": list(openings),
        f"{name}_openings": _as_array(openings.values()),
        f"{name}_lows": lows,
        f"{name}_highs": list(highs.values()),
        f"{name}_firsts": _as_array(times[low - 1] for low in lows),
    }


def _as_array(times: Iterable[str]) -> str:
    """Return the text of an array: psycopg takes 10 ms to quote a month of hours one by one."""
    return f"{{{','.join(times)}}}"


def _stretch_sums(summed: Summed, stretch: Stretch, name: str) -> list[str]:
    """Return SELECTs of what lifetimes held in the stretch called `name`.

    Where the hour before is summed: the amounts held at its end, for the whole stretch, plus
    lifetimes that begin in it, minus amounts after an end in it.
    """
    columns = f"{summed.columns}, {summed.source_columns}"
    by = f"GROUP BY {ordinals(len(summed.keys) + 1)}"
    listed = ", ".join(["bucket", *summed.keys])

    def added_up(source: str, extra: str, kind: str) -> str:
        many = len(stretch.buckets) > 1
        held = pieces(source, f"{columns}{extra}", summed.source_where, name, many=many)
        return f"SELECT {listed}, {summed.listed(kind)} FROM ({held}) AS pieces {by}"  # noqa: S608

    if stretch.after is None or not all(each.level for each in summed.cells.values()):
        return [added_up(summed.source, "", "pieces")]
    seconds = int((stretch.bounds[1] - stretch.bounds[0]).total_seconds())
    rows = (
        f"SELECT *, {seconds} AS lasting, {stretch.opens[0]} AS opens FROM"  # noqa: S608
        f" {summed.tables.of('hour')}"
        f" WHERE hour = %({name}_after)s AND {summed.where}"
    )
    carried = (
        f"SELECT {stretch.buckets[0]}, {summed.columns}, {summed.listed('level')}"  # noqa: S608
        f" FROM ({rows}) AS rows {by}"
    )
    return [
        carried,
        added_up(POD_PARTS[0], "", "pieces"),
        added_up(POD_ENDS, ", finished_at = b.begins AS is_over", "ended"),
    ]


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
class Query:
    """By which SQL expression is grouped, of which rows, with which prices, if any; `named`: the
    parts in which accelerators with a price of their own are looked for."""

    key: str
    where: str
    prices: Prices | None = None
    named: Parts | None = None


def pod_sums(
    query: Query, parts: Parts, names: Sequence[str], tables: Tables
) -> tuple[str, dict[str, Any]]:
    """Return the SELECT of bucket, key, pods, the sums called for and cost, and its parameters.

    `tables` have the sums by span, day and hour, with all columns that are needed (`tables_of`).
    """
    prices, keys = query.prices, {"key": query.key}
    if prices and prices.kind:
        keys["kind"] = "NULL::text" if tables.typed else prices.kind
    counted = {name: _PODS[name] for name in ("pods", *names)}
    listed = [*counted, *accelerator_columns(_accelerators(query))]
    selects, parameters = _pod_selects(query, parts, counted, tables, keys)
    if prices and tables.typed:
        of_types = f"({query.where}) AND instance_type = ANY(%(priced_types)s)"
        needed = {n: _PODS[n] if n in prices.amounts else NOTHING for n in counted}
        own = {**keys, "kind": "instance_type"}
        priced = replace(query, where=of_types)
        selects += _pod_selects(priced, parts, needed, tables.undivided, own)[0]
    by = ["bucket", *keys]
    ends = any(each.after for each in parts.stretches) and "seconds" in names
    statement = (united if prices and not ends else together)(selects, listed, by)
    if ends:  # who holds nothing after the hour, having ended with it, is not in the range
        statement += " HAVING sum(pods) <> 0 OR sum(seconds) <> 0"
    if prices is None:
        return _free(statement), parameters
    cost = prices.of_pods(statement, list(counted), apart=bool(tables.typed))
    return cost, parameters | prices.parameters


def _accelerators(query: Query) -> list[str]:
    return query.prices.accelerators if query.prices and query.named else []


def _pod_selects(
    query: Query, parts: Parts, counted: Mapping[str, Cell], tables: Tables, keys: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    """Return SELECTs of bucket, keys, the sums `counted` and accelerators with a price by name, and
    their parameters, which depend on the parts alone."""
    accelerators = _accelerators(query)
    own = accelerator_columns(accelerators)
    cells = {**counted, **dict.fromkeys(own, NOTHING)}
    summed = Summed(tables, keys, query.where, cells, POD_PIECES, query.where, PIECE_COLUMNS)
    selects, parameters = part_selects(summed, parts, "p")
    if query.named and accelerators:
        cells = dict.fromkeys(counted, NOTHING) | _accelerator_cells(own)
        named = Summed(
            tables.accelerators,
            keys,
            f"({query.where}) AND accelerator = ANY(%(accelerators)s)",
            cells,
            POD_PIECES,
            f"({query.where}) AND accelerators ?| %(accelerators)s",
            ", ".join(accelerator_counts(accelerators)),
        )
        more, theirs = part_selects(named, query.named, "n")
        selects += more
        parameters |= theirs
    return selects, parameters


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


def partition_sums(query: Query, parts: Parts, tables: Tables) -> tuple[str, dict[str, Any]]:
    """Return the SELECT of bucket, key, partitions, their IPU-seconds and cost, and its
    parameters."""
    names = list(_PARTITIONS)
    keys, where = {"key": query.key}, query.where
    summed = Summed(tables, keys, where, _PARTITIONS, PARTITION_PIECES, where, "size")
    selects, parameters = part_selects(summed, parts, "h")
    by = ("bucket", "key")
    if query.prices is None:
        return _free(together(selects, names, by)), parameters
    statement = united(selects, names, by)
    return query.prices.of_partitions(statement, names), parameters | query.prices.parameters


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


TOTAL_COST: Final = "CASE WHEN count(*) > 0 THEN sum(cost) ELSE 0 END"
"""SQL of the cost of all rows: none where there are rows and none of them has a cost."""
STEP: Final = "bucket"
"""The order of a series: by step, then by value. Any other order is a sum, largest first."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the result: how many dimensions a key has, the order, and whether it begins
    later."""

    dimensions: int
    order: str
    goes_on: bool = False
    limited: bool = False


def joined(pods: str, partitions: str) -> str:
    """Return the SELECT of bucket, key and all sums of two SELECTs; both have a cost."""
    cells = ", ".join(f"COALESCE({name}, 0) AS {name}" for name in NAMES if name != "cost")
    return (
        f"SELECT bucket, key, {cells}, COALESCE(p.cost + h.cost, p.cost, h.cost) AS cost"  # noqa: S608  # our own SELECTs
        f" FROM ({pods}) AS p"
        f" FULL JOIN ({partitions}) AS h USING (bucket, key)"
    )


def rows_sql(sums: str, shape: Shape) -> str:
    """Return the SELECT of bucket, key (an array) and sums, in order.

    Parameters: `after_rank` and `after_key` for the next page, `limit` with a limit.
    """
    return f"WITH sums AS MATERIALIZED ({sums}) {_rows(shape)}"


def page_sql(sums: str, shape: Shape) -> str:
    """Return the same and a row without a key: how many there are (as bucket), and their sum."""
    totals = ", ".join(f"COALESCE(sum({name}), 0)" for name in NAMES if name != "cost")
    totals += f", {TOTAL_COST}"
    return (
        f"WITH sums AS MATERIALIZED ({sums})"  # noqa: S608  # likewise
        f" SELECT count(*)::int AS bucket, NULL::text[] AS key, {totals} FROM sums"
        f" UNION ALL ({_rows(shape)})"
    )


def counts_sql(sums: str) -> str:
    """Return the SELECT of how many rows each bucket has. It is not MATERIALIZED: PostgreSQL adds
    up nothing that is not selected."""
    return f"SELECT bucket, count(*)::int FROM ({sums}) AS sums GROUP BY 1"  # noqa: S608


def _rows(shape: Shape) -> str:
    key = key_array(shape.dimensions)
    rank, beyond = (STEP, ">") if shape.order == STEP else (f"COALESCE({shape.order}, 0)", "<")
    direction = "" if shape.order == STEP else " DESC"
    kind = "text[]" if shape.dimensions > 1 else "text"
    after = (
        f" WHERE {rank} {beyond} %(after_rank)s::numeric OR ({rank} = %(after_rank)s::numeric"
        f' AND key > %(after_key)s::{kind} COLLATE "C")'
    )
    return (
        f"SELECT bucket, {key}, {', '.join(NAMES)} FROM sums{after if shape.goes_on else ''}"  # noqa: S608
        f' ORDER BY {rank}{direction}, key COLLATE "C"{" LIMIT %(limit)s" if shape.limited else ""}'
    )


def key_array(dimensions: int) -> str:
    """Return the key of a row, which `key_sql` made, as an array."""
    return {0: "'{}'::text[]", 1: "ARRAY[key]"}.get(dimensions, "key")


def key_sql(columns: list[str]) -> str:
    """Return the expression to group by: one text, or an array of several."""
    if len(columns) > 1:
        return f"ARRAY[{', '.join(columns)}]::text[]"
    return columns[0] if columns else "''::text"
