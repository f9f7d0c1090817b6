"""glue: the list of partitions, page and API: what they cost, and that older ones were purged.

A composition root: joins partitions, the rates of usage, and its retention, which deletes them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ipuhub.web.access import may_see_cost
from partitions.api import PartitionList
from partitions.views import PARTITIONS, WATCH
from usage.rates.linecosts import EVER, read_line_costs
from usage.rates.linecosts import PARTITIONS as PARTITION_LINES
from usage.retention.purged import list_notes, say_purged
from usage.tables import COST, COST_EXPORTS
from usage.time.zones import usage_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest
    from rest_framework.request import Request

    from ipuhub.web.filters import Filters


def _notes(_request: HttpRequest) -> dict[str, Any]:
    return list_notes(WATCH, timezone.now())


def _add_costs(request: HttpRequest, _filters: Filters, rows: Sequence[Any]) -> None:
    """Set `cost` of rows, of all their time, for whoever may know it."""
    if not may_see_cost(request.user):
        return
    now = timezone.now().replace(second=0, microsecond=0)
    costs = read_line_costs(PARTITION_LINES, rows, EVER, now, usage_zone())
    for row in rows:
        row.cost = costs.get(row.pk)


partition_list = dataclasses.replace(
    PARTITIONS,
    columns=(*PARTITIONS.columns, COST, *COST_EXPORTS),
    more=_notes,
    prepare=_add_costs,
).view


class AllPartitions(PartitionList):
    """Partitions that jobs hold and held, newest reservation first."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page; older rows that were purged are said in a header."""
        answer = super().list(request, *args, **kwargs)
        say_purged(answer)
        return answer
