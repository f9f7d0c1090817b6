"""glue: the filters of jobs, for page, exports and API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django_filters

from ipuhub.web.filters import Filters, InstantFilter
from jobs.models import JobRecord
from jobs.states import DELETED, ENDED, STATES

if TYPE_CHECKING:
    from django.db.models import QuerySet


class JobFilters(Filters):
    """By namespace, group and user (exact), state, part of the name, and day of creation."""

    namespace = django_filters.CharFilter(label="Namespace")
    name = django_filters.CharFilter(label="Name contains", method="has_in_name")
    status = django_filters.ChoiceFilter(
        label="Status",
        choices=[(state, state) for state in STATES],
        empty_label="Any",
        method="in_state",
    )
    group = django_filters.CharFilter(label="Group")
    user = django_filters.CharFilter(label="User")
    since = InstantFilter(field_name="created_at", lookup_expr="gte", label="Created from")
    until = InstantFilter(
        field_name="created_at", lookup_expr="lt", label="Created until", end=True
    )

    class Meta:
        model = JobRecord
        fields: tuple[str, ...] = ()

    def has_in_name(self, rows: QuerySet[JobRecord], _name: str, value: str) -> QuerySet[JobRecord]:
        """Names are in lower case; which of them match is read from the index of names alone."""
        found = JobRecord.objects.filter(name__contains=value.lower())
        return rows.filter(pk__in=found.values("pk"))

    def in_state(self, rows: QuerySet[JobRecord], _name: str, value: str) -> QuerySet[JobRecord]:
        """Jobs that were deleted before their end are Deleted, whatever they were then."""
        if value == DELETED:
            return rows.filter(deleted_at__isnull=False).exclude(status__in=ENDED)
        found = rows.filter(status=value)
        return found if value in ENDED else found.filter(deleted_at=None)
