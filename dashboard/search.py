"""glue: the search over jobs, pods, partitions, nodes, people, groups, namespaces and pages: for
the page and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Q
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from dashboard.live import live_reader
from dashboard.nav import entries_for
from dashboard.templatetags.fleet import machine_address
from ipuhub.api.views import PlainView
from ipuhub.web.access import scope_of, signed_in, usage_scope_of
from ipuhub.web.filters import BadFilter, Mistake, filter_text
from ipuhub.web.problems import bad_parameters, takes
from jobs.selectors import listed_jobs, names_like, state_of, visible_jobs
from usage.selectors import USED_WITHIN, names_used, visible_lifetimes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from dashboard.nav import Entry
    from ipuhub.web.access import Caller, Scope
    from jobs.models import JobRecord

LONGEST: Final = 253  # of a Kubernetes name
_JOBS: Final = 12
_PARTITIONS: Final = 8
_NODES: Final = 8
_MACHINES: Final = 8
_NAMES: Final = 6  # of a kind
KINDS: Final = ("Page", "Job", "IPU-Machine", "Partition", "Node", "Namespace", "Group", "User")


@dataclass(frozen=True, slots=True)
class Found:
    """A result: its kind, name and link, and a distinguishing detail if several have the name.
    `job`: UID of the job that it is, or that holds it."""

    kind: str
    name: str
    href: str
    note: str = ""
    job: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """The results; `unsearched`: why the names of usage were not searched."""

    found: list[Found]
    unsearched: str = ""


def job_of_pod(name: str) -> str:
    """The job whose pod has this name (`jobs.ipujob.names`); empty: no job's pod is named so."""
    head, _, last = name.rpartition("-")
    if last.isdecimal():
        head, _, role = head.rpartition("-")
        return head if role == "worker" else ""
    return head if last == "launcher" else ""


def find(text: str, scope: Scope, usage: Scope, entries: Iterable[Entry]) -> Results:
    """Everything that matches `text` and that the reader may see; `usage`: whose pods they see,
    `entries`: the pages that they may open.

    Asks PostgreSQL three times, and for accountants now and then once more.
    """
    names = names_like(scope, text, _NAMES)
    used, unsearched = _used(text, scope, usage, names)
    found = [
        *_pages(text, entries),
        *_jobs(text, scope),
        *_machines(text),
        *_partitions(text, scope),
        *_nodes(text, usage),
        *map(_name, names),
        *used,
    ]
    return Results(found, unsearched)


def _pages(text: str, entries: Iterable[Entry]) -> Iterator[Found]:
    for entry in entries:
        if entry.label.casefold().startswith(text.casefold()):
            yield Found("Page", entry.label, reverse(entry.url_name))


def _jobs(text: str, scope: Scope) -> Iterator[Found]:
    """The newest jobs with the text in their names, or of the pod or UID of that name, or of that
    `namespace/name`."""
    matches = Q(pk__in=visible_jobs(scope).filter(name__contains=text.lower()).values("pk"))
    matches |= Q(uid=text)
    if job := job_of_pod(text):
        matches |= Q(name=job)
    namespace, slash, name = text.partition("/")
    if slash:
        matches |= Q(namespace=namespace, name=name)
    rows = listed_jobs(scope).filter(matches).order_by("-created_at", "-id")[:_JOBS]
    return (_job(row) for row in rows)


def _job(row: JobRecord) -> Found:
    words = (row.namespace, state_of(row), row.user, f"{row.created_at:%Y-%m-%d %H:%M} UTC")
    href = reverse("jobs:detail", args=[row.uid])
    return Found("Job", row.name, href, " · ".join(filter(None, words)), row.uid)


def _machines(text: str) -> Iterator[Found]:
    """IPU-Machines of the fleet's reading with the text in their names; the exact one first."""
    controllers = live_reader().read(timezone.now()).fleet.value.get("controllers") or []
    named = [
        (machine["agent"] != text, controller["address"], machine)
        for controller in controllers
        for machine in controller["machines"]
        if text.lower() in machine["agent"].lower()
    ]
    for _, address, machine in sorted(named, key=lambda each: each[0])[:_MACHINES]:
        place = f"{address} · IPU-Link domain {machine['domain']}"
        if href := machine_address(address, machine["agent"]):
            yield Found("IPU-Machine", machine["agent"], href, place)


def _partitions(text: str, scope: Scope) -> list[Found]:
    """Partitions of now: of older partitions, the jobs are found."""
    held = live_reader().read(timezone.now()).partitions.value
    matching = (
        partition
        for partition in held
        if partition.id and text.lower() in partition.id and scope.covers(partition.namespace)
    )
    return [
        Found(
            "Partition",
            partition.id,
            reverse("jobs:detail", args=[partition.uid]),
            f"{partition.size} IPUs · {partition.phase} · {partition.namespace}/{partition.name}",
            partition.uid,
        )
        for partition in list(matching)[:_PARTITIONS]
    ]


def _nodes(text: str, usage: Scope) -> list[Found]:
    """Nodes with running pods and the text in their names: each leads to its pods."""
    if not settings.USAGE_ENABLED:
        return []
    running = visible_lifetimes(usage).filter(finished_at=None, node__contains=text.lower())
    names = running.exclude(node="").order_by("node").values_list("node", flat=True).distinct()
    address = reverse("usage:lifetimes")
    return [
        Found("Node", name, f"{address}?{urlencode({'node': name, 'running': 'true'})}", "its pods")
        for name in names[:_NODES]
    ]


def _name(each: tuple[str, str]) -> Found:
    """A namespace, group or user: it leads to its jobs."""
    kind, name = each
    address = f"{reverse('jobs:list')}?{urlencode({kind: filter_text(name)})}"
    return Found(kind.capitalize(), name, address, "its jobs")


def _used(
    text: str, scope: Scope, usage: Scope, names: Collection[tuple[str, str]]
) -> tuple[list[Found], str]:
    """Return the namespaces, groups and users with the text in their names of which the reader sees
    no job: each leads to its usage; and why they were not searched, if so."""
    if not settings.USAGE_ENABLED or not _sees_more(usage, scope):
        return [], ""
    used, problem = names_used(usage, text, _NAMES, timezone.now())
    address = reverse("usage:month")
    found = [
        Found(
            kind.capitalize(),
            name,
            f"{address}?{urlencode({kind: filter_text(name), 'window': USED_WITHIN})}",
            "its usage",
        )
        for kind, name in used
        if (kind, name) not in names
    ]
    return found, problem


def _sees_more(usage: Scope, jobs: Scope) -> bool:
    """Return whether there is usage of jobs that the reader does not see, as for accountants."""
    if jobs.namespaces is None:
        return False
    return usage.namespaces is None or not usage.namespaces <= jobs.namespaces


def search_for(user: Caller, text: str) -> Results:
    """Return what matches `text` and `user` may see; nothing for an empty text. Raises
    BadFilter."""
    if len(text) > LONGEST:
        raise BadFilter(Mistake("q", f"at most {LONGEST} characters."))
    if not (name := text.strip()):
        return Results([])
    return find(name, scope_of(user), usage_scope_of(user), entries_for(user))


@require_safe
@signed_in
@takes("q")
def search(request: HttpRequest) -> HttpResponseBase:
    """Show what matches `q`."""
    text = request.GET.get("q", "")
    try:
        results = search_for(request.user, text)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    context = {"q": text.strip(), "results": results.found, "unsearched": results.unsearched}
    return render(request, "search.html", context)


class FoundSerializer(serializers.Serializer[Any]):
    """A result. `note` tells it from others of its name."""

    kind = serializers.ChoiceField(choices=KINDS)
    name = serializers.CharField()
    note = serializers.CharField()
    job = serializers.CharField(
        help_text="UID of the job, also of the job that holds a partition; empty: of no job."
    )
    page = serializers.URLField(help_text="Its page in the dashboard.")


class ResultsSerializer(serializers.Serializer[Any]):
    """Results in the order of the page of the search. `unsearched`: why the names of usage were not
    searched (empty: they were)."""

    unsearched = serializers.CharField()
    results = FoundSerializer(many=True)


class SearchView(PlainView):
    """The search over jobs, pods, partitions, machines, nodes, users, groups and namespaces."""

    parameters = frozenset({"q"})

    @extend_schema(
        operation_id="search",
        summary="Search by part of a name",
        parameters=[
            OpenApiParameter(
                "q",
                {"type": "string", "minLength": 1, "maxLength": LONGEST},
                required=True,
                description="Part of a name; of a pod the whole name, of a job also its UID.",
            )
        ],
        responses=ResultsSerializer,
    )
    def get(self, request: Request) -> Response:
        """The newest and nearest results of each kind that the caller may see. Raises BadFilter and
        ValidationError."""
        text = str(request.query_params.get("q", ""))
        if not text.strip():
            raise ValidationError({"q": ["Say what to search for."]})
        results = search_for(request.user, text)
        found = [
            {
                "kind": each.kind,
                "name": each.name,
                "note": each.note,
                "job": each.job,
                "page": request.build_absolute_uri(each.href),
            }
            for each in results.found
        ]
        body: dict[str, Any] = {"unsearched": results.unsearched, "results": found}
        return Response(ResultsSerializer(body).data)
