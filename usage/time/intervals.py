"""domain: the part of a lifetime that falls into a range, in Python and as SQL.

A range is [first, until). Instants are cut to whole seconds before they are subtracted. So the
pieces of a lifetime that is cut at whole seconds add up to the whole exactly, and all sums are
integers. A lifetime without an end lasts to `until`, so callers pass at most the time of the
report. A lifetime that ends before it begins (clocks differ) has length zero, and counts where it
begins.

The SQL selects from the table of pods and the view of holdings (partitions/migrations) by name; its
parameters are those of `bounds`. It never scans the whole history: lifetimes that begin in the
range come from the index of beginnings, in that order. Lifetimes carried into the range are either
short, and began within the day before, or long or open, for which there are small partial indexes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

SHORT: Final = timedelta(days=1)
"""Longest lifetime that the index of long ones leaves out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a lifetime that falls into a range."""

    start: datetime
    end: datetime
    running: bool

    @property
    def seconds(self) -> int:
        """The length in whole seconds."""
        return whole_seconds(self.start, self.end)


def whole_seconds(start: datetime, end: datetime) -> int:
    """Return the seconds between the two, each cut to its second."""
    cut = end.replace(microsecond=0) - start.replace(microsecond=0)
    return cut // timedelta(seconds=1)


def clip(
    began: datetime | None, ended: datetime | None, first: datetime, until: datetime
) -> Piece | None:
    """Return the part of [began, ended) in [first, until), or None. `running`: it continues after
    `until`."""
    if began is None or began >= until:
        return None
    if began < first and ended is not None and ended <= first:
        return None
    start = max(began, first)
    end = max(until if ended is None else min(ended, until), start)
    return Piece(start, end, ended is None or ended > until)


def bounds(first: datetime, until: datetime) -> dict[str, datetime]:
    """Return the parameters of POD_PIECES and PARTITION_PIECES for [first, until)."""
    return {"first": first, "until": max(first, until), "day_before": first - SHORT}


def _parts(table: str, began: str, ended: str) -> tuple[str, ...]:
    """Return SELECTs of all columns of `table`, and `start`, `stop`, `going_on`, `seconds`."""
    first, until = "%(first)s::timestamptz", "%(until)s::timestamptz"
    length = f"{ended} - {began}"
    spans = f"tstzrange({began}, GREATEST({ended}, {began}), '()')"

    def select(start: str, condition: str) -> str:
        stop = f"GREATEST(LEAST({ended}, {until}), {start})"
        seconds = f"floor(date_part('epoch', {stop})) - floor(date_part('epoch', {start}))"
        return (
            f"SELECT {table}.*, {start} AS start, {stop} AS stop,"  # noqa: S608
            f" ({ended} IS NULL OR {ended} > {until}) AS going_on, ({seconds})::bigint AS seconds"
            f" FROM {table} WHERE {condition}"
        )

    return (
        select(began, f"{began} >= {first} AND {began} < {until}"),
        select(
            first,
            f"{began} >= %(day_before)s::timestamptz AND {began} < {first} AND {ended} > {first}"
            f" AND {length} <= interval '1 day'",
        ),
        select(first, f"{length} > interval '1 day' AND {spans} @> {first}"),
        select(first, f"{ended} IS NULL AND {began} < {first}"),
    )


POD_PARTS: Final = _parts("usage_podlifetime", "scheduled_at", "finished_at")
"""Disjoint parts of POD_PIECES: what begins in the range (in order, from an index), and what is
carried into it: short, long, open."""

POD_ENDS: Final = (
    "SELECT usage_podlifetime.*, finished_at AS start, %(until)s::timestamptz AS stop"
    " FROM usage_podlifetime WHERE finished_at >= %(first)s::timestamptz"
    " AND finished_at < %(until)s::timestamptz AND scheduled_at < %(first)s::timestamptz"
)
"""Pods that were carried into the range, or end as it begins, and end in it, with the rest of the
range as `start` and `stop`: what they no longer hold."""

PARTITION_PARTS: Final = _parts("partitions_holdings", "reserved_at", "released_at")
"""Likewise of PARTITION_PIECES."""

POD_PIECES: Final = "\nUNION ALL\n".join(POD_PARTS)
"""Pods allocated in the range: every column of PodLifetime, with `start`, `stop` (clipped to the
range), `going_on` (beyond `until`) and `seconds`. Use as `FROM ({POD_PIECES}) AS pods`."""

PARTITION_PIECES: Final = "\nUNION ALL\n".join(PARTITION_PARTS)
"""Partitions held in the range, from reserved to released, likewise."""

_AMOUNT: Final = (
    "sum(pod.micro_ipus::numeric * GREATEST("
    "floor(date_part('epoch', LEAST(COALESCE(pod.finished_at, {held}.stop), {held}.stop)))"
    " - floor(date_part('epoch', GREATEST(pod.scheduled_at, {held}.start))), 0)::bigint)"
)
_TOGETHER: Final = (
    "pod.job_uid = {held}.job_uid AND pod.job_uid <> '' AND pod.namespace = {held}.namespace"
    " AND pod.partition = {held}.partition AND pod.scheduled_at < {held}.stop"
    " AND (pod.finished_at IS NULL OR pod.finished_at > {held}.start)"
)
_IDLE: Final = "GREATEST({held}.size * 1000000::numeric * {held}.seconds - COALESCE({used}, 0), 0)"


def idle_sql(held: str) -> str:
    """Return SQL of the micro-IPU-seconds that a partition was held beyond the IPUs of its pods.

    `held` names a row of PARTITION_PIECES. Pods of the same job, partition and namespace (elsewhere
    it is a stranger's claim) count for the time in which both were there; more IPUs than the
    partition has make no negative rest.
    """
    used = f"(SELECT {_AMOUNT} FROM usage_podlifetime AS pod WHERE {_TOGETHER})"  # noqa: S608
    return _IDLE.format(held=held, used=used.format(held=held))


IDLE_PIECES: Final = (
    f"WITH held AS MATERIALIZED ({PARTITION_PIECES}), used AS ("  # noqa: S608
    f"SELECT held.id, {_AMOUNT.format(held='held')} AS micro FROM held"
    f" JOIN ({POD_PIECES}) AS pod ON {_TOGETHER.format(held='held')} GROUP BY held.id)"
    f" SELECT held.*, {_IDLE.format(held='held', used='used.micro')} AS idle"
    " FROM held LEFT JOIN used USING (id)"
)
"""PARTITION_PIECES with that sum as `idle`, for all of them at once: one join of the range's pods
where `idle_sql` looks for those of each partition by itself."""
