"""domain: the SQL that cuts lifetimes into the pieces of a stretch, and sums of pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from usage.time.intervals import PARTITION_PIECES, bounds

if TYPE_CHECKING:
    from usage.sums.parts import Stretch

_SECONDS: Final = (
    "GREATEST(floor(date_part('epoch', LEAST(stop, b.ends)))"
    " - floor(date_part('epoch', GREATEST(start, b.begins))), 0)::bigint"
)
PIECE_COLUMNS: Final = "estimated, user_verified, cpu_millicores, memory_bytes, gpus, micro_ipus"
"""The columns of a pod that PIECE_SUMS are of."""


def _total(column: str) -> str:
    """Return SQL of the exact sum of column x secs, in halves of 31 bits: a piece is shorter than
    2**31 s (68 years), so that no product exceeds 8 bytes. Numeric would take three times as long.
    """
    high, low = f"sum(({column} >> 31) * secs)", f"sum(({column} & 2147483647) * secs)"
    return f"COALESCE({high}::numeric * 2147483648 + {low}, 0)"


PIECE_SUMS: Final = {
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
