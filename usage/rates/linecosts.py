"""io: the cost of single pods, partitions and jobs, with the SQL of reports.

A lifetime costs what its part of a range costs. A lifetime with prices in two currencies has no
cost, because their amounts cannot be added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from usage.rates.pricing import LineCost
from usage.rates.sql import CostSql
from usage.reading import fetch, pricing_at
from usage.time.windows import bounds, clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from zoneinfo import ZoneInfo

    from usage.rates.pricing import Pricing

EVER: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""Before all that was recorded."""
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Lines:
    """A kind of lifetime: the fields between which it is held, and the SQL of its cost."""

    began: str
    ended: str
    sql: Callable[..., str]


PODS: Final = Lines("scheduled_at", "finished_at", CostSql.lines_of_pods)
PARTITIONS: Final = Lines("reserved_at", "released_at", CostSql.lines_of_partitions)


def read_line_costs(
    lines: Lines, rows: Iterable[Any], first: datetime, until: datetime, zone: ZoneInfo
) -> dict[int, LineCost]:
    """Return the cost of each of `rows` in [first, until), at most up to now, by primary key,
    without rows that have no cost.

    Takes one query and one more for each currency, for any number of rows, and none if no row was
    allocated.
    """
    clipped = (
        (row.pk, clip(getattr(row, lines.began), getattr(row, lines.ended), first, until))
        for row in rows
    )
    pieces = {pk: piece for pk, piece in clipped if piece}
    if not pieces:
        return {}
    begin = min(piece.start for piece in pieces.values())
    end = max(begin + _SECOND, *(piece.end for piece in pieces.values()))
    pricing = pricing_at(begin, end, zone)
    held = {pk: pricing.currencies_in(each.start, each.end) for pk, each in pieces.items()}
    found: dict[int, LineCost] = {}
    for currency in pricing.currencies:
        ids = [pk for pk, currencies in held.items() if currencies == {currency}]
        cost = CostSql(pricing.only(currency).usable)
        parameters = bounds(begin, end) | cost.parameters | {"ids": ids}
        exact = dict(fetch(lines.sql(cost, "id = ANY(%(ids)s)"), parameters))
        found |= {
            pk: LineCost(int(exact.get(pk, 0)), currency, page_decimals=pricing.decimals)
            for pk in ids
        }
    return found


def read_job_costs(
    job_uids: Sequence[str], began: datetime, until: datetime, zone: ZoneInfo
) -> dict[tuple[str, str], LineCost]:
    """Return the cost of all pods and partitions of each job in [began, until), by UID and
    namespace; without jobs that have no price, or prices in two currencies.

    Takes one query and one more for each currency, for any number of jobs.
    """
    pricing = pricing_at(began, max(until, began + _SECOND), zone)
    found: dict[tuple[str, str], list[LineCost]] = {}
    for currency in pricing.currencies:
        own = pricing.only(currency)
        cost = CostSql(own.usable)
        where = "job_uid = ANY(%(job_uids)s) AND job_uid <> ''"
        key = "job_uid, namespace"
        lines = " UNION ALL ".join(each.sql(cost, where, key) for each in (PODS, PARTITIONS))
        begin, end = pricing.segments[0].begin, pricing.segments[-1].end
        parameters = bounds(begin, end) | cost.parameters | {"job_uids": list(job_uids)}
        sums = f"SELECT {key}, sum(cost) FROM ({lines}) AS lines GROUP BY {key}"  # noqa: S608
        for uid, namespace, exact in fetch(sums, parameters):
            found.setdefault((uid, namespace), []).append(
                LineCost(int(exact), currency, pricing.decimals, pricing.decimals)
            )
    return {job: costs[0] for job, costs in found.items() if len(costs) == 1}


def read_job_cost(
    job_uid: str, namespace: str, began: datetime, until: datetime, zone: ZoneInfo
) -> list[LineCost]:
    """Return the cost of the pods and partitions of a job in [began, until), by currency."""
    pricing = pricing_at(began, until, zone)
    own = (pricing.only(currency) for currency in pricing.currencies)
    return [cost for each in own if (cost := _job_cost(each, job_uid, namespace))]


def _job_cost(pricing: Pricing, job_uid: str, namespace: str) -> LineCost | None:
    if not pricing.currency:
        return None
    cost = CostSql(pricing.usable)
    # The third condition lets PostgreSQL use the index.
    where = "job_uid = %(job_uid)s AND namespace = %(namespace)s AND job_uid <> ''"
    lines = " UNION ALL ".join(each.sql(cost, where) for each in (PODS, PARTITIONS))
    begin, until = pricing.segments[0].begin, pricing.segments[-1].end
    names = {"job_uid": job_uid, "namespace": namespace}
    parameters = bounds(begin, until) | cost.parameters | names
    ((total,),) = fetch(f"SELECT COALESCE(sum(cost), 0) FROM ({lines}) AS lines", parameters)  # noqa: S608
    return LineCost(int(total), pricing.currency, pricing.decimals, pricing.decimals)
