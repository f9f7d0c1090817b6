"""glue: the filters of pods, faults and gaps, for page, files and API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db.models import Q
from django.db.models.fields.json import KeyTextTransform

from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.filters import AnyOfFilter, Filters, InstantFilter, YesNoFilter
from usage.models import PodLifetime
from usage.sums.dimensions import LABEL
from usage.time.zones import usage_zone

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import Model, QuerySet

    _M = TypeVar("_M", bound=Model)


class HeldAfter(InstantFilter):
    """Pods that held something after an instant: those of a sum from then on."""

    def filter(self, rows: QuerySet[PodLifetime], value: datetime | None) -> QuerySet[PodLifetime]:
        """Return the rows that pass."""
        if value is None:
            return rows
        is_open = Q(finished_at=None) | Q(finished_at__gt=value) | Q(scheduled_at__gte=value)
        return rows.filter(is_open, scheduled_at__isnull=False)


class LabelFilter(AnyOfFilter):
    """By the value of a recorded label."""

    def filter(self, rows: QuerySet[_M], value: list[str]) -> QuerySet[_M]:
        """Return the rows that pass."""
        if not value:
            return rows
        number = len(rows.query.annotations)
        name = f"label_{number}"
        found: QuerySet[_M] = rows.alias(
            **{name: KeyTextTransform(self.field_name, "labels")}
        ).filter(**{f"{name}__in": value})
        return found


class LifetimeFilters(Filters):
    """By what usage is grouped by (exact), by when they held something, and by creation."""

    of_usage = True
    namespace = AnyOfFilter(label="Namespace")
    group = AnyOfFilter(label="Group")
    user = AnyOfFilter(label="User")
    component = AnyOfFilter(label="Component")
    component_name = AnyOfFilter(label="Component name")
    instance_type = AnyOfFilter(label="Instance type")
    job = AnyOfFilter(field_name="job_uid", label="Job UID")
    node = AnyOfFilter(label="Node")
    running = YesNoFilter(field_name="finished_at", lookup_expr="isnull", label="Running")
    estimated = YesNoFilter(label="Estimated end")
    unproved = YesNoFilter(
        field_name="stamp", lookup_expr="isnull", exclude=True, label="Job not recorded"
    )
    since = InstantFilter(
        field_name="created_at", lookup_expr="gte", label="Created from", zone=usage_zone
    )
    until = InstantFilter(
        field_name="created_at", lookup_expr="lt", label="Created until", end=True, zone=usage_zone
    )

    def more_filters(self) -> dict[str, Any]:
        """Return the range, named as for sums, and the labels that are recorded."""
        before = InstantFilter(
            field_name="scheduled_at",
            lookup_expr="lt",
            label="Held until",
            end=True,
            zone=usage_zone,
        )
        ranges = {"from": HeldAfter(label="Held from", zone=usage_zone), "to": before}
        labels = {
            f"{LABEL}{key}": LabelFilter(field_name=key, label=f"Label {key}")
            for key in settings.USAGE_LABELS
        }
        return ranges | labels

    class Meta:
        model = PodLifetime
        fields: tuple[str, ...] = ()


class FaultFilters(Filters):
    """By watch, kind of fault and namespace (exact)."""

    of_usage = True
    watch = AnyOfFilter(label="Watch")
    code = AnyOfFilter(label="Fault")
    namespace = AnyOfFilter(label="Namespace")

    class Meta:
        model = RecordFault
        fields: tuple[str, ...] = ()


class GapFilters(Filters):
    """By watch (exact), and by what the gap overlaps."""

    watch = AnyOfFilter(label="Watch")
    since = InstantFilter(
        field_name="ended_at", lookup_expr="gt", label="Ended after", zone=usage_zone
    )
    until = InstantFilter(
        field_name="began_at", lookup_expr="lt", label="Began before", end=True, zone=usage_zone
    )

    class Meta:
        model = WatchGap
        fields: tuple[str, ...] = ()
