"""glue: what was recorded of pods, and what could not be, within what somebody may see.

So is what a pod cost: whoever sees no rates sees none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.access import sees_cost
from usage.models import PodLifetime
from usage.rates.linecosts import EVER, PODS, read_line_costs
from usage.time.ranges import usage_zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from ipuhub.web.access import Scope


def visible_lifetimes(scope: Scope) -> QuerySet[PodLifetime]:
    """Return the pods that may be shown, scheduled or not."""
    rows = PodLifetime.objects.all()
    return rows if scope.namespaces is None else rows.filter(namespace__in=scope.namespaces)


def add_pod_costs(
    scope: Scope, asked: Mapping[str, datetime | None], rows: Sequence[PodLifetime], now: datetime
) -> None:
    """Set `cost` of rows for whoever may know it: of their part of the range `asked` for by `from`
    and `to`, of all their time without; what goes on counts up to `now`."""
    if not sees_cost(scope):
        return
    first, until = asked.get("from") or EVER, min(asked.get("to") or now, now)
    costs = read_line_costs(PODS, rows, first, until, usage_zone())
    for row in rows:
        row.cost = costs.get(row.pk)


def faults(scope: Scope) -> QuerySet[RecordFault]:
    """Return what the recorders could not take; only who sees everything sees any."""
    return RecordFault.objects.all() if scope.sees_all else RecordFault.objects.none()


def gaps(_scope: Scope) -> QuerySet[WatchGap]:
    """Return when watches saw nothing; they name no namespace, so anybody may know."""
    return WatchGap.objects.all()
