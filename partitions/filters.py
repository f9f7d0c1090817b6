"""glue: the filters of partitions, for page, exports and API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django_filters

from ipuhub.web.filters import Filters, InstantFilter
from partitions.models import PartitionLifetime
from partitions.proxy.lifecycle import Phase

if TYPE_CHECKING:
    from django.db.models import QuerySet

HELD, RELEASED = "held", Phase.RELEASED.value
_STORED = [phase for phase in Phase if phase not in {Phase.WAITING, Phase.RELEASED}]
STATES = [
    (HELD, "Held"),
    *((phase.value, f"Held: {phase.value}") for phase in _STORED),
    (RELEASED, "Released"),
]


class PartitionFilters(Filters):
    """By namespace, state, controller, job name (all exact) and day of reservation."""

    namespace = django_filters.CharFilter(label="Namespace")
    state = django_filters.ChoiceFilter(
        label="State", choices=STATES, empty_label="Any", method="in_state"
    )
    controller = django_filters.CharFilter(label="Controller")
    job = django_filters.CharFilter(field_name="job_name", label="Job name")
    since = InstantFilter(field_name="reserved_at", lookup_expr="gte", label="Reserved from")
    until = InstantFilter(
        field_name="reserved_at", lookup_expr="lt", label="Reserved until", end=True
    )

    class Meta:
        model = PartitionLifetime
        fields: tuple[str, ...] = ()

    def in_state(
        self, rows: QuerySet[PartitionLifetime], _name: str, value: str
    ) -> QuerySet[PartitionLifetime]:
        """Held is whatever is not released; the phase narrows it."""
        if value == RELEASED:
            return rows.filter(released_at__isnull=False)
        held = rows.filter(released_at=None)
        return held if value == HELD else held.filter(phase=value)
