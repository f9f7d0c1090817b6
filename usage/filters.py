"""glue: the filters of pods, faults and gaps, for page, files and API."""

from __future__ import annotations

import django_filters

from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.filters import Filters, InstantFilter, YesNoFilter
from usage.models import PodLifetime


class LifetimeFilters(Filters):
    """By what usage is grouped by (exact), and by the time of creation."""

    namespace = django_filters.CharFilter(label="Namespace")
    group = django_filters.CharFilter(label="Group")
    user = django_filters.CharFilter(label="User")
    component = django_filters.CharFilter(label="Component")
    component_name = django_filters.CharFilter(label="Component name")
    instance_type = django_filters.CharFilter(label="Instance type")
    job = django_filters.CharFilter(field_name="job_uid", label="Job UID")
    running = YesNoFilter(field_name="finished_at", lookup_expr="isnull", label="Running")
    estimated = YesNoFilter(label="Estimated end")
    since = InstantFilter(field_name="created_at", lookup_expr="gte", label="Created from")
    until = InstantFilter(
        field_name="created_at", lookup_expr="lt", label="Created until", end=True
    )

    class Meta:
        model = PodLifetime
        fields: tuple[str, ...] = ()


class FaultFilters(Filters):
    """By watch, kind of fault and namespace (exact)."""

    watch = django_filters.CharFilter(label="Watch")
    code = django_filters.CharFilter(label="Fault")
    namespace = django_filters.CharFilter(label="Namespace")

    class Meta:
        model = RecordFault
        fields: tuple[str, ...] = ()


class GapFilters(Filters):
    """By watch (exact), and by what the gap overlaps."""

    watch = django_filters.CharFilter(label="Watch")
    since = InstantFilter(field_name="ended_at", lookup_expr="gt", label="Ended after")
    until = InstantFilter(field_name="began_at", lookup_expr="lt", label="Began before", end=True)

    class Meta:
        model = WatchGap
        fields: tuple[str, ...] = ()
