"""glue: the columns of the lists of pods, faults and gaps, and their filters, for page, files and
API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db.models import Q, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from ipuhub.models import RecordFault, WatchGap
from ipuhub.text import Figure, human_duration, spell_duration
from ipuhub.web.columns import SAME, SUM, Column
from ipuhub.web.filters import AnyOfFilter, Filters, InstantFilter, YesNoFilter
from usage.models import PodLifetime
from usage.rates.pricing import cost_record
from usage.sums.measures import GIB, LABEL
from usage.time.months import usage_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from django.db.models import Model, QuerySet


def _user(pod: PodLifetime) -> str:
    return pod.user if pod.user_verified or not pod.user else f"{pod.user} (unverified)"


def _end(pod: PodLifetime) -> str:
    if pod.finished_at is None:
        return "running" if pod.scheduled_at else "not scheduled"
    if pod.scheduled_at is None:
        return "never scheduled"
    end = f"estimated, ± {pod.uncertainty_seconds} s" if pod.estimated else "exact"
    return f"{end}, node's clock off by {pod.skew_seconds} s" if pod.skew_seconds else end


def waited_seconds(pod: PodLifetime) -> int | None:
    """Return how long a pod waited for a node, in whole seconds; None: it still waits.

    A pod that never got a node waited until it was deleted; that is no allocation.
    """
    until = pod.scheduled_at or pod.finished_at
    return max(0, int((until - pod.created_at).total_seconds())) if until else None


def _waited(pod: PodLifetime, words: Callable[[float], str] = human_duration) -> str:
    seconds = waited_seconds(pod)
    return "still waiting" if seconds is None else words(seconds)


def _json(values: Mapping[str, object]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def _cost(name: str) -> Callable[[object], object]:
    return lambda row: cost_record(getattr(row, "cost", None))[name]


COST = Column(
    "cost",
    "Cost",
    _cost("cost"),
    kind="number",
    rendered=lambda row: getattr(getattr(row, "cost", None), "on_page", None),
    sparse=True,
    total=SUM,
    unit=_cost("currency"),
)
COST_EXPORTS = (
    Column("cost_micros", "", _cost("cost_micros"), "export", total=SUM, unit=_cost("currency")),
    Column("currency", "", _cost("currency"), kind="export", total=SAME),
)
"""Of rows whose `cost` was read; empty in files for whoever may not know it."""


def _export(*names: str) -> tuple[Column, ...]:
    return tuple(
        Column(name, "", lambda row, name=name: getattr(row, name), kind="export")  # type: ignore[misc]
        for name in names
    )


LIFETIME_COLUMNS = (
    Column("pod_name", "Pod", lambda pod: pod.pod_name, kind="code", phone="1.2"),
    Column("namespace", "Namespace", lambda pod: pod.namespace),
    Column("group", "Group", lambda pod: pod.group, room=1200),
    Column("user_shown", "User", _user, phone="2.3"),
    Column("component", "", lambda pod: pod.component, kind="export"),
    Column("instance_type", "Type", lambda pod: pod.instance_type, phone="2.1", room=1600),
    Column(
        "ipus",
        "IPUs",
        lambda pod: Figure(f"{pod.micro_ipus / 10**6:g}"),
        kind="number",
        phone="1.3",
    ),
    Column("cpus", "", lambda pod: Figure(f"{pod.cpu_millicores / 1000:g}"), kind="export"),
    Column("memory_gib", "", lambda pod: Figure(f"{pod.memory_bytes / GIB:.4g}"), kind="export"),
    Column(
        "waited", "Waited", _waited, rendered=lambda pod: _waited(pod, spell_duration), room=1600
    ),
    Column("scheduled_at", "Scheduled", lambda pod: pod.scheduled_at, kind="time", phone="2.2"),
    Column("finished_at", "Finished", lambda pod: pod.finished_at, kind="time", room=1200),
    Column("end", "End", _end, phone="1.1"),
    COST,
    *_export(
        "uid",
        "claim",
        "component_name",
        "claimed_component",
        "user",
        "user_verified",
        "job_uid",
        "role",
        "instance",
        "attempt",
        "partition",
        "node",
        "cpu_millicores",
        "memory_bytes",
        "gpus",
        "micro_ipus",
        "phase",
        "reason",
        "exit_code",
        "created_at",
        "started_at",
        "end_source",
        "estimated",
        "uncertainty_seconds",
        "skew_seconds",
        "seen_at",
    ),
    Column("waited_seconds", "", waited_seconds, kind="export"),
    Column("accelerators", "", lambda pod: _json(pod.accelerators), kind="export"),
    Column("labels", "", lambda pod: _json(pod.labels), kind="export"),
    *COST_EXPORTS,
)
FAULT_COLUMNS = (
    Column("code", "Fault", lambda fault: fault.code, kind="code", phone="1.1"),
    Column("namespace", "Namespace", lambda fault: fault.namespace, phone="2.3"),
    Column("name", "Object", lambda fault: fault.name, phone="1.2"),
    Column("message", "What is wrong", lambda fault: fault.message, kind="note", phone="2.2"),
    Column("excerpt", "As it stood", lambda fault: fault.excerpt, kind="note"),
    Column("count", "Times", lambda fault: fault.count, kind="number", phone="1.3"),
    Column("last_at", "Last seen", lambda fault: fault.last_at, kind="ago", phone="2.1"),
    *_export("watch", "uid", "first_at"),
)
GAP_COLUMNS = (
    Column("watch", "Watch", lambda gap: gap.watch, phone="1.3"),
    Column("began_at", "From", lambda gap: gap.began_at, kind="time", phone="1.1"),
    Column("ended_at", "Until", lambda gap: gap.ended_at, kind="time", phone="1.2"),
    Column("cause", "Cause", lambda gap: gap.cause, kind="note", phone="2.1"),
    *_export("shows_loss"),
)
if TYPE_CHECKING:
    _M = TypeVar("_M", bound=Model)


class HeldAfter(InstantFilter):
    """Pods that held something after an instant, for the link from a sum."""

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
        text = KeyTextTransform(self.field_name, "labels")
        label = Coalesce(text, Value(""), output_field=TextField())
        found: QuerySet[_M] = rows.alias(**{name: label}).filter(**{f"{name}__in": value})
        return found


class LifetimeFilters(Filters):
    """Filters of lifetimes: by the dimensions of usage (exact), by the time of holding, and by
    creation."""

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
