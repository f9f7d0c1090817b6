"""glue: the pages of partitions: list, statistics with capacity, query.

Also the filters of partitions, which page, exports and API share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import django_filters
from django import forms
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.partition import Phase
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.columns import Column
from ipuhub.web.exports import export, known_format
from ipuhub.web.filters import BadFilter, Filters, InstantFilter
from ipuhub.web.lists import ListPage
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.readings import problem_sentence
from ipuhub.web.requests import live_page
from partitions.connections import PROXY_AWAY, fleet_reader
from partitions.errors import PartitionsError
from partitions.models import PartitionLifetime
from partitions.selectors import capacity_now, visible_partitions
from partitions.stats import bar_segments, stat_table, sum_amounts
from partitions.vipu.topology import PARTITION_SIZES, agent_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from ipuhub.web.access import Scope
    from partitions.connections import Fit
    from partitions.stats import StatTable

LARGEST: Final = 2**31 - 1
MESSAGES: Final[dict[str, Any]] = {
    "required": "Enter a number of IPUs, for example 4.",
    "invalid": "The size must be a whole number of IPUs, for example 4.",
    "min_value": "The size must be at least 1 IPU.",
    "max_value": f"The size must be at most {LARGEST}.",
}


class SizeForm(forms.Form):
    """One size, from 1; whether a partition can have it is the answer's to say."""

    size = forms.IntegerField(min_value=1, max_value=LARGEST, error_messages=MESSAGES)


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


STAT_COLUMNS = (
    Column("namespace", "Namespace", lambda row: row.namespace),
    Column("used", "Held", lambda row: row.used, kind="number"),
    Column("available", "Available", lambda row: row.available, kind="number"),
)


def _job_page(partition: PartitionLifetime) -> str:
    try:
        return reverse("jobs:detail", args=[partition.job_uid])
    except NoReverseMatch:  # no UID that the jobs' pages could have
        return ""


def all_machines(machines: Mapping[str, object]) -> str:
    """Return the names of the IPU-Machines that a partition stands on."""
    return ", ".join(sorted(machines, key=agent_order))


def named_machines(machines: Mapping[str, object]) -> str:
    """Return the first of the IPU-Machines that a partition stands on, and how many more it has."""
    names = sorted(machines, key=agent_order)
    return f"{names[0]} + {len(names) - 1}" if len(names) > 1 else "".join(names)


def machine_page(partition: PartitionLifetime) -> str:
    """The page of the first machine; dashboard/machines has it."""
    names = sorted(partition.machines, key=agent_order)
    try:
        return reverse("machine", args=[partition.controller, names[0]]) if names else ""
    except NoReverseMatch:  # no name that an address could have
        return ""


WATCH = "tracker"
"""The checkpoint of the partitions' recorder."""
MACHINES = Column(
    "machines",
    "Machines",
    lambda row: all_machines(row.machines),
    rendered=lambda row: named_machines(row.machines),
    link=machine_page,
    sparse=True,
    room=1200,
)
COLUMNS = (
    Column("phase", "State", lambda row: row.phase, kind="badge", phone="1.1"),
    Column("partition", "Partition", lambda row: row.partition, kind="code", phone="2.2"),
    Column("namespace", "Namespace", lambda row: row.namespace, phone="2.3"),
    Column("job", "Job", lambda row: row.job_name, link=_job_page, phone="1.2"),
    Column("size", "IPUs", lambda row: row.size, kind="number", phone="1.3"),
    Column(
        "controller", "Controller", lambda row: row.controller, room=1200, gives_way_to="machines"
    ),
    MACHINES,
    Column("reserved_at", "Reserved", lambda row: row.reserved_at, kind="ago", phone="2.1"),
    Column("released_at", "Released", lambda row: row.released_at, kind="ago"),
    Column("message", "Message", lambda row: row.message, kind="brief", sparse=True),
    Column("reason", "", lambda row: row.reason, kind="export"),
    Column("active_at", "", lambda row: row.active_at, kind="export"),
    Column("instance", "", lambda row: row.instance, kind="export"),
    Column("attempt", "", lambda row: row.attempt, kind="export"),
    Column("group", "", lambda row: row.group, kind="export"),
    Column("user", "", lambda row: row.user, kind="export"),
    Column("job_uid", "", lambda row: row.job_uid, kind="export"),
    Column("key", "", lambda row: row.key, kind="export"),
    Column("estimated", "", lambda row: row.estimated, kind="export"),
    Column("uncertainty_seconds", "", lambda row: row.uncertainty_seconds, kind="export"),
    Column("job_name", "", lambda row: row.job_name, kind="export"),
)
PARTITIONS = ListPage(
    title="Partitions",
    noun="partition",
    columns=COLUMNS,
    filters=PartitionFilters,
    select=visible_partitions,
    order=("reserved_at", "id"),
    empty="Partitions appear here when they are reserved and stay visible after their release.",
    template="partitions/list.html",
)
"""The list; dashboard/partitions.py also says how fresh it is and what was purged of it."""


@require_safe
@signed_in
@takes("format")
def stats(request: HttpRequest) -> HttpResponseBase:
    """Show IPUs held and available, and for administrators what each controller has."""
    now, scope = timezone.now(), scope_of(request.user)
    reading = fleet_reader().stats(now)
    table = stat_table(reading.value, scope.covers, sees_all=scope.sees_all)
    try:
        if kind := known_format(request.GET.get("format", "")):
            return export(kind, STAT_COLUMNS, table.rows, "stats")
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    context = _stats_context(table, scope) | {
        "problem": reading.sentence(in_full=scope.sees_all),
        "stale_since": reading.read_at if reading.problem else None,
    }
    templates = ("partitions/stats.html", "partitions/_stats.html")
    at = reading.read_at
    return live_page(request, templates, context, at, now=now, read_at=at)


def _stats_context(table: StatTable, scope: Scope) -> dict[str, Any]:
    controllers = capacity_now() if scope.sees_all else []
    sums = sum_amounts(controllers)
    return {
        "table": table,
        "held": sum(row.used for row in table.rows),
        "sees_all": scope.sees_all,
        "controllers": [(controller, bar_segments(controller)) for controller in controllers],
        "sums": sums,
        "sums_bar": bar_segments(sums),
    }


@require_safe
@signed_in
@takes("size")
def query(request: HttpRequest) -> HttpResponse:
    """Ask how many partitions of `?size=` fit now; a size of no use is a 400 with a sentence."""
    is_sent = "size" in request.GET
    form = SizeForm(request.GET if is_sent else None)
    fit, problem = _ask(form, scope_of(request.user)) if is_sent and form.is_valid() else (None, "")
    context = {
        "form": form,
        "fit": fit,
        "problem": problem,
        "sizes": PARTITION_SIZES,
        "now": timezone.now(),
    }
    status = 400 if is_sent and form.errors else 503 if problem else 200
    return render(request, "partitions/query.html", context, status=status)


def _ask(form: SizeForm, scope: Scope) -> tuple[Fit | None, str]:
    try:
        return fleet_reader().query(form.cleaned_data["size"]), ""
    except PartitionsError as error:
        return None, problem_sentence(PROXY_AWAY, str(error), in_full=scope.sees_all)
