"""domain: the SQL that adds up lifetimes, clipped as in usage/intervals.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from usage.intervals import PARTITION_PIECES, POD_ENDS, POD_PARTS, POD_PIECES, bounds
from usage.rates.heldsql import accelerator_columns, accelerator_counts
from usage.sums.coarsesql import COARSE, FULL, refill_sql
from usage.sums.measures import LEVELS, POD_SUMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usage.sums.parts import Parts, Stretch
    from usage.sums.prices import Prices

_SECONDS: Final = (
    "GREATEST(floor(date_part('epoch', LEAST(stop, b.ends)))"
    " - floor(date_part('epoch', GREATEST(start, b.begins))), 0)::bigint"
)
_PIECE_COLUMNS: Final = "estimated, user_verified, cpu_millicores, memory_bytes, gpus, micro_ipus"
_KEYS: Final = 2
"""Bucket and key: what every sum is by."""
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


def _total(column: str) -> str:
    """Return SQL of the exact sum of column x secs, in halves of 31 bits: a piece is shorter than
    2**31 s (68 years), so that no product exceeds 8 bytes. Numeric would take three times as long.
    """
    high, low = f"sum(({column} >> 31) * secs)", f"sum(({column} & 2147483647) * secs)"
    return f"COALESCE({high}::numeric * 2147483648 + {low}, 0)"


_PIECE_SUMS: Final = {
    "seconds": "COALESCE(sum(secs), 0)",
    "estimated_seconds": "COALESCE(sum(secs) FILTER (WHERE estimated), 0)",
    "unverified_seconds": "COALESCE(sum(secs) FILTER (WHERE NOT user_verified), 0)",
    "millicore_seconds": _total("cpu_millicores"),
    "byte_seconds": _total("memory_bytes"),
    "gpu_seconds": _total("gpus"),
    "micro_ipu_seconds": _total("micro_ipus"),
}


def pieces(source: str, columns: str, where: str, name: str, *, many: bool = True) -> str:
    """Return a SELECT of `columns` for each piece of each lifetime in the stretch called `name`.

    It has `secs`, `bucket`, `begun` and `counts` (the lifetime counts in this piece: it begins in
    it, or the piece opens a step). Parameters: those of `stretch_parameters`. Where the stretch
    is not of `many` pieces nothing is cut, so that the planner need not guess how often.
    """
    began = "reserved_at" if source is PARTITION_PIECES else "scheduled_at"
    own = source
    for each in ("first", "until", "day_before"):
        own = own.replace(f"%({each})s", f"%({name}_{each})s")
    clipped = f"SELECT * FROM ({own}) AS clipped WHERE {where}"  # noqa: S608
    piece = _piece(name, "1")
    if many:
        clipped, piece = _numbered(clipped, name), _piece(name, "i")
        piece += " FROM generate_series(low, GREATEST(low, high)) AS i"
    return (
        f"SELECT {columns}, b.bucket, (b.opens OR {began} >= b.begins) AS counts,"  # noqa: S608
        f" {began} >= b.begins AS begun, {_SECONDS} AS secs"
        f" FROM ({clipped}) AS lifetimes CROSS JOIN LATERAL ({piece}) AS b"
        " OFFSET 0"  # else `secs` is computed anew for each sum
    )


def _piece(name: str, number: str) -> str:
    array = f"(%({name}_bounds)s::timestamptz[])"
    return (
        f"SELECT {array}[{number}] AS begins, {array}[{number} + 1] AS ends,"
        f" (%({name}_buckets)s::int[])[{number}] AS bucket,"
        f" (%({name}_opens)s::bool[])[{number}] AS opens"
    )


def _numbered(clipped: str, name: str) -> str:
    """Return the lifetimes with the numbers of their first and last piece."""
    array = f"%({name}_bounds)s::timestamptz[]"
    last = f"width_bucket(stop, {array})"
    return (
        f"SELECT *, width_bucket(start, {array}) AS low,"  # noqa: S608
        f" {last} - (stop = ({array})[{last}])::int AS high FROM ({clipped}) AS whole"
    )


def stretch_parameters(name: str, stretch: Stretch) -> dict[str, Any]:
    """Return the parameters of `pieces` for one stretch."""
    own = bounds(stretch.bounds[0], stretch.bounds[-1])
    return {
        **{f"{name}_{key}": value for key, value in own.items()},
        f"{name}_bounds": list(stretch.bounds),
        f"{name}_buckets": list(stretch.buckets),
        f"{name}_opens": list(stretch.opens),
        f"{name}_after": stretch.after,
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """By which SQL expression is grouped, of which rows, with which prices, if any; `named`: the
    window in which accelerators with a price of their own are looked for."""

    key: str
    where: str
    prices: Prices | None = None
    named: Parts | None = None


def pod_sums(
    asked: Asked, parts: Parts, names: Sequence[str] = POD_SUMS, table: str = FULL
) -> tuple[str, dict[str, Any]]:
    """Return the SELECT of bucket, key, pods, the sums called for and cost, and its parameters.

    `table` has the sums by day and hour, with all columns that are needed (`table_of`).
    """
    prices = asked.prices
    kind = prices.kind if prices else ""
    extra = f", {kind} AS kind" if kind else ""
    accelerators = prices.accelerators if prices else []
    own = accelerator_columns(accelerators)
    listed = ("pods", *names, *own)
    rolled = _Tables(table, f"{asked.key} AS key{extra}", asked.where, 3 if kind else 2)
    selects, parameters = _rolled_sums(rolled, parts, ("pods", *names), own)
    for number, stretch in enumerate(parts.stretches):
        name = f"s{number}"
        selects += _raw_sums(rolled, stretch, name, names, ", 0::numeric" * len(own))
        parameters |= stretch_parameters(name, stretch)
    if own:
        more, theirs = _named_sums(asked, extra, ("pods", *names), accelerators)
        selects += more
        parameters |= theirs
    statement = _together(selects, listed, ("bucket", "key", *(["kind"] if kind else [])))
    if any(each.after for each in parts.stretches) and "seconds" in names:
        # Who holds nothing after the hour, having ended with it, is not in the range.
        statement += " HAVING sum(pods) <> 0 OR sum(seconds) <> 0"
    if prices is None:
        return _free(statement), parameters
    return prices.of_pods(statement, ("pods", *names)), parameters | prices.parameters


def _raw_sums(
    rolled: _Tables, stretch: Stretch, name: str, names: Sequence[str], zeros: str
) -> list[str]:
    """Return SELECTs of what pods held in the stretch called `name`; `zeros` come after the sums.

    Where the hour before is summed: what was held as it ended, for the whole stretch, and what
    begins in it, less what is no longer held after an end in it.
    """
    columns = f"{rolled.columns}, {_PIECE_COLUMNS}"
    listed = "bucket, key, kind" if rolled.keys > _KEYS else "bucket, key"
    by = f"GROUP BY {_ordinals(rolled.keys)}"

    def summed(source: str, extra: str, count: str, sign: str = "") -> str:
        many = len(stretch.buckets) > 1
        held = pieces(source, f"{columns}{extra}", rolled.where, name, many=many)
        sums = "".join(f", {sign}{_PIECE_SUMS[each]}" for each in names)
        return f"SELECT {listed}, {count} AS pods{sums}{zeros} FROM ({held}) AS pieces {by}"  # noqa: S608

    counted = "count(*) FILTER (WHERE counts)"
    if stretch.after is None:
        return [summed(POD_PIECES, "", counted)]
    seconds = int((stretch.bounds[1] - stretch.bounds[0]).total_seconds())
    carried = "sum(going_pods)::bigint" if stretch.opens[0] else "0::bigint"
    levels = "".join(f", sum({LEVELS[each]}) * {seconds}" for each in names)
    held = (
        f"SELECT {stretch.buckets[0]}, {rolled.columns}, {carried} AS pods{levels}{zeros}"  # noqa: S608
        f" FROM {rolled.tables}hour WHERE hour = %({name}_after)s AND {rolled.where} {by}"
    )
    return [
        held,
        summed(POD_PARTS[0], "", counted),
        summed(
            POD_ENDS,
            ", finished_at = b.begins AS is_over",
            "-count(*) FILTER (WHERE counts AND is_over)",
            "-",
        ),
    ]


def _named_sums(
    asked: Asked, extra: str, zeros: Sequence[str], accelerators: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Return SELECTs of the accelerators with a price of their own, which no sum of a day or an
    hour knows, from the lifetimes that hold any; `zeros` come before them."""
    none = "".join(f", 0 AS {each}" for each in zeros)
    own = accelerator_columns(accelerators)
    held = "".join(f", COALESCE(sum({each} * secs), 0) AS {each}" for each in own)
    counts = "".join(f", {each}" for each in accelerator_counts(accelerators))
    where = f"({asked.where}) AND accelerators ?| %(accelerators)s"
    keys = "bucket, key, kind" if extra else "bucket, key"
    selects: list[str] = []
    parameters: dict[str, Any] = {}
    for number, stretch in enumerate(asked.named.stretches if asked.named else ()):
        name = f"a{number}"
        columns = f"{asked.key} AS key{extra}{counts}"
        source = pieces(POD_PIECES, columns, where, name, many=len(stretch.buckets) > 1)
        selects.append(f"SELECT {keys}{none}{held} FROM ({source}) AS pieces GROUP BY {keys}")  # noqa: S608
        parameters |= stretch_parameters(name, stretch)
    return selects, parameters


def partition_sums(asked: Asked, parts: Parts) -> tuple[str, dict[str, Any]]:
    """Return the SELECT of bucket, key, partitions, their IPU-seconds and cost, and its
    parameters."""
    names = ("partitions", "partition_ipu_seconds")
    rolled = _Tables("usage_partition", f"{asked.key} AS key", asked.where, 2)
    selects, parameters = _rolled_sums(rolled, parts, names)
    for number, stretch in enumerate(parts.stretches):
        name = f"h{number}"
        many = len(stretch.buckets) > 1
        columns = f"{asked.key} AS key, size"
        source = pieces(PARTITION_PIECES, columns, asked.where, name, many=many)
        selects.append(
            "SELECT bucket, key, count(*) FILTER (WHERE counts) AS partitions,"  # noqa: S608
            " sum(size * secs) AS partition_ipu_seconds"
            f" FROM ({source}) AS pieces GROUP BY 1, 2"
        )
        parameters |= stretch_parameters(name, stretch)
    statement = _together(selects, names, ("bucket", "key"))
    if asked.prices is None:
        return _free(statement), parameters
    return asked.prices.of_partitions(statement, names), parameters | asked.prices.parameters


@dataclass(frozen=True, slots=True)
class _Tables:
    """Tables of sums by day and hour, and by what they are read; `keys`: how many columns that is,
    the bucket among them."""

    tables: str
    columns: str
    where: str
    keys: int


def _rolled_sums(
    rolled: _Tables, parts: Parts, names: Sequence[str], zeros: Sequence[str] = ()
) -> tuple[list[str], dict[str, Any]]:
    """Return SELECTs from the day and the hour sums, and their parameters.

    The first of `names` counts lifetimes, the others are sums; `zeros` come after them.
    """
    count, *sums = names
    listed = "".join(f", sum({name}) AS {name}" for name in sums)
    listed += "".join(f", 0::numeric AS {name}" for name in zeros)
    selects: list[str] = []
    parameters: dict[str, Any] = {}
    for grain, kind, taken in (("day", "date", parts.days), ("hour", "timestamptz", parts.hours)):
        if not taken:
            continue
        selects.append(
            f"SELECT d.bucket, {rolled.columns},"  # noqa: S608
            f" sum(CASE WHEN d.opens THEN {count} ELSE begun END)::bigint AS {count}{listed}"
            f" FROM unnest(%({grain}s)s::{kind}[], %({grain}_buckets)s::int[],"
            f" %({grain}_opens)s::bool[]) AS d ({grain}, bucket, opens)"
            f" JOIN {rolled.tables}{grain} USING ({grain}) WHERE {rolled.where}"
            f" GROUP BY {_ordinals(rolled.keys)}"
        )
        parameters |= {
            f"{grain}s": [each.day or each.begin for each in taken],
            f"{grain}_buckets": [each.bucket for each in taken],
            f"{grain}_opens": [each.opens for each in taken],
        }
    return selects, parameters


def _together(selects: Sequence[str], names: Sequence[str], keys: Sequence[str]) -> str:
    if not selects:
        return ""
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    by = ", ".join(keys)
    return (
        f"SELECT {by}, {sums} FROM ("  # noqa: S608
        + " UNION ALL ".join(selects)
        + f") AS parts ({by}, {', '.join(names)}) GROUP BY {_ordinals(len(keys))}"
    )


def _free(statement: str) -> str:
    return f"SELECT *, 0::numeric AS cost FROM ({statement}) AS free"  # noqa: S608


def _ordinals(count: int) -> str:
    return ", ".join(str(n + 1) for n in range(count))


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


def _refill_pods(grain: str, kind: str) -> str:
    sums = _PIECE_SUMS | (_LEVEL_SUMS if grain == "hour" else {})
    return (
        f"INSERT INTO usage_usage{grain} ({grain}, namespace,"  # noqa: S608
        f' "group", "user", component, instance_type, pods, begun, {", ".join(sums)})'
        f' SELECT (%(times)s::{kind}[])[bucket + 1], namespace, "group", "user", component,'
        " instance_type, count(*), count(*) FILTER (WHERE begun),"
        f" {', '.join(sums.values())} FROM ("
        + pieces(
            POD_PIECES,
            'namespace, "group", "user", component, instance_type, estimated, user_verified, '
            f"cpu_millicores, memory_bytes, gpus, micro_ipus, {_GOING}",
            "true",
            "s",
        )
        + ") AS pieces GROUP BY 1, 2, 3, 4, 5, 6"
    )


def _refill_partitions(grain: str, kind: str) -> str:
    columns = 'namespace, "group", "user", size'
    return (
        f"INSERT INTO usage_partition{grain} ({grain}, {columns}, partitions, begun,"  # noqa: S608
        f" partition_ipu_seconds) SELECT (%(times)s::{kind}[])[bucket + 1], {columns}, count(*),"
        " count(*) FILTER (WHERE begun), sum(size::numeric * secs)"
        f" FROM ({pieces(PARTITION_PIECES, columns, 'true', 's')}) AS pieces GROUP BY 1, 2, 3, 4, 5"
    )


def _refill(grain: str, kind: str) -> tuple[str, ...]:
    coarse = (refill_sql(table, grain, kind) for table in COARSE)
    return (_refill_pods(grain, kind), _refill_partitions(grain, kind), *coarse)


REFILL: Final = {"day": _refill("day", "date"), "hour": _refill("hour", "timestamptz")}
"""Sums an unbroken run of days or hours anew: a stretch `s`, a bucket for each of `times`."""
TABLES: Final = {
    grain: tuple(f"{table}{grain}" for table in (FULL, "usage_partition", *COARSE))
    for grain in ("day", "hour")
}
"""The tables that these fill."""
