"""domain: the SQL that puts what closed months cost in the place of what their prices make.

A closed month costs the sum of its report's rounded rows, with those of its corrections, wherever
it is shown as a whole: unrounded sums of the same rows would be another total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from usage.sums.measures import COST_UNIT, HOUR, NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from usage.rates.pricing import Pricing

_ROWS: Final = """
FROM usage_reportrow AS line JOIN usage_monthreport AS report ON report.id = line.report_id
  AND report.state IN ('closed', 'correction')
JOIN unnest(%(closed_months)s::text[], %(closed_steps)s::int[]) AS closed (of_month, bucket)
  ON closed.of_month = report.month
"""


@dataclass(frozen=True, slots=True)
class ClosedSteps:
    """The steps of a question that are closed months, by number."""

    months: dict[int, str]

    @property
    def parameters(self) -> dict[str, Any]:
        """What the texts refer to."""
        return {
            "closed_steps": list(self.months),
            "closed_months": list(self.months.values()),
        }

    def costs(self, key: str, where: str) -> str:
        """Return the SELECT of bucket, key and cost of these steps, of lines of reports."""
        return (
            f"SELECT bucket, {key} AS key, true AS listed,"
            f" sum(line.cost) * {HOUR} * {COST_UNIT} AS cost"
            f" {_ROWS} WHERE {where} GROUP BY 1, 2"
        )

    def in_place(self, sums: str, costs: str) -> str:
        """Return `sums` with these costs. A line of a report of which nothing is left has no other
        sums; what was found since costs nothing yet where it has a price."""
        cells = ", ".join(f"COALESCE({name}, 0) AS {name}" for name in NAMES if name != "cost")
        return (
            f"SELECT bucket, key, {cells}, CASE WHEN bucket <> ALL(%(closed_steps)s::int[])"  # noqa: S608  # likewise
            " THEN sums.cost WHEN lines.listed THEN lines.cost ELSE sums.cost * 0 END AS cost"
            f" FROM ({sums}) AS sums"
            f" FULL JOIN ({costs}) AS lines USING (bucket, key)"
            " WHERE sums.bucket IS NOT NULL OR lines.cost <> 0"
        )


def closed_steps(
    pricing: Pricing | None, begins: Sequence[datetime], end: datetime
) -> ClosedSteps | None:
    """Return which of the steps, the last of which ends at `end`, are closed months with prices;
    None: none is, or there is no cost."""
    if pricing is None or not pricing.usable:
        return None
    months = {(each.first, each.end): each.month for each in pricing.closed if each.tariff.prices}
    steps = zip(begins, [*begins[1:], end], strict=True)
    found = {n: months[step] for n, step in enumerate(steps) if step in months}
    return ClosedSteps(found) if found else None
