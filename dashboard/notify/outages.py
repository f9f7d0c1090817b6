"""glue: outages of components, from the worker's looks at them every 30 s.

A component that is down in each look for PATIENCE has an outage that subscribers learn of. A
shorter one is forgotten, so that a component that comes and goes sends no message each time.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from dashboard.components import DOWN, UP
from dashboard.recordedsigns import read_recorded
from ipuhub.models import ComponentOutage

if TYPE_CHECKING:
    from dashboard.components import Component

PATIENCE: Final = dt.timedelta(minutes=3)
KEPT: Final = dt.timedelta(days=60)


def record_outages(now: dt.datetime) -> None:
    """Begin outages of components that are down, and end those of components that are up again.

    A component whose state is unknown keeps its outage. Of a component that no longer exists, such
    as a V-IPU controller taken off the list, there is nothing more to say.
    """
    found = {component.name: component for component in read_recorded(now)}
    _begin([component for component in found.values() if component.state == DOWN], now)
    for outage in ComponentOutage.objects.filter(ended_at=None):
        component = found.get(outage.name)
        if component is None or (component.state == UP and now - outage.since < PATIENCE):
            outage.delete()
        elif component.state == UP:
            ComponentOutage.objects.filter(pk=outage.pk, ended_at=None).update(ended_at=now)
    ComponentOutage.objects.filter(ended_at__lt=now - KEPT).delete()


def _begin(down: list[Component], now: dt.datetime) -> None:
    rows = [ComponentOutage(name=each.name, since=now, detail=each.detail) for each in down]
    # Most have one already, perhaps by another worker: the constraint decides.
    ComponentOutage.objects.bulk_create(rows, ignore_conflicts=True)


def lasting_outages(now: dt.datetime, ended_after: dt.datetime) -> list[ComponentOutage]:
    """Return outages of at least PATIENCE that last, or ended after that time, oldest first."""
    lasting = ComponentOutage.objects.filter(since__lte=now - PATIENCE)
    return list(lasting.exclude(ended_at__lt=ended_after).order_by("since", "id"))
