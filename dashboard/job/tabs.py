"""glue: the common parts of a job's pages: head, tabs, and the response of a tab.

A tab is a view that reads with `read_view` and answers with `answer_tab`::

    view = read_view(request, uid)
    return answer_tab(view, "pods", "jobs/_pods.html", {"tables": tables}, cells)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from dashboard.actions.changes import RUN_AGAIN, change_of, offered_actions
from dashboard.job.events import list_events
from dashboard.job.usage import read_held
from ipuhub.web.access import access_of, may_see_cost, scope_of
from ipuhub.web.cells import colour_of
from ipuhub.web.readings import freshness_of
from ipuhub.web.requests import fragment_etag, not_modified, note_as_of, tagged, wants_fragment
from jobs.selectors import find_job, state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.job.events import Event
    from dashboard.job.usage import Held
    from ipuhub.web.readings import Freshness
    from jobs.models import JobRecord

GROWS_EACH_SECONDS: Final = 15  # how often bars and sums of a running job are redrawn


@dataclass(frozen=True, slots=True)
class Tab:
    """A page of a job: its text, the name of its address, whether it is about usage, and how many
    of its things there are."""

    label: str
    url_name: str
    of_usage: bool = False
    of_logs: bool = False
    count: Callable[[JobView], int] | None = None


TABS: Final = (
    Tab("Overview", "detail"),
    Tab("Logs", "logs", of_logs=True),
    Tab("Pods and attempts", "pods", count=lambda view: view.held.usage.pods),
    Tab("Events", "events", count=lambda view: view.events),
    Tab("Usage and cost", "usage", of_usage=True),
    Tab("YAML", "yaml"),
)


@dataclass(frozen=True)  # no slots: a cached property needs a dictionary
class JobView:
    """The parts of a job's page, as of `now`."""

    request: HttpRequest
    job: JobRecord
    state: str
    held: Held
    fresh: Freshness
    now: datetime

    @property
    def goes_on(self) -> bool:
        """Return whether a pod runs or a partition is held."""
        return any(pod.scheduled_at and not pod.finished_at for pod in self.held.pods) or any(
            not partition.released_at for partition in self.held.partitions
        )

    @cached_property
    def happened(self) -> list[Event]:
        """The events of the job without what people requested of it."""
        return list_events(self.job, self.held)

    @property
    def events(self) -> int:
        """The number of lines of the tab of events."""
        return len(self.happened) + self.job.past.requests


def read_view(request: HttpRequest, uid: str, *, manifests: bool = False) -> JobView:
    """Read the common data of a job's pages. Raises Http404."""
    now = timezone.now()
    job = find_job(scope_of(request.user), uid, manifests=manifests)
    held = read_held(job, now, costed=may_see_cost(request.user, job.namespace))
    return JobView(request, job, state_of(job), held, freshness_of(job.past.watched_at, now), now)


def answer_tab(
    view: JobView, tab: str, body: str, context: dict[str, Any], *contents: object
) -> HttpResponseBase:
    """Answer with the page, its changing part, or 304; `contents` are what the tab shows below the
    head."""
    # Growing values are not redrawn each second; ended ones change only with the rates.
    ticks = int(view.now.timestamp() // GROWS_EACH_SECONDS)
    grows = ticks if view.goes_on else str(view.held.usage.costs)
    lives = [
        [(row.pk, row.updated_at) for row in view.held.pods],
        [(row.pk, row.updated_at, row.machines) for row in view.held.partitions],
    ]
    acts_as = _acts_as(view)
    past = view.job.past
    last = max((event.last_at for event in past.events), default=None)
    seen = view.job.updated_at, past.requests, len(past.events), last
    tag = fragment_etag(view.request, seen, lives, view.fresh, grows, acts_as, contents)
    note_as_of(view.request, view.fresh.as_of)
    if same := not_modified(view.request, tag):
        return same
    template = "jobs/_job.html" if wants_fragment(view.request) else "jobs/job.html"
    values = _head(view, tab) | {"body": body, "etag": tag} | context
    return tagged(view.request, render(view.request, template, values), tag)


def answer_static_tab(
    view: JobView, tab: str, body: str, context: dict[str, Any]
) -> HttpResponseBase:
    """Answer with a page that is not swapped while it is open."""
    values = _head(view, tab) | {"body": body, "is_still": True} | context
    return render(view.request, "jobs/job.html", values)


def _acts_as(view: JobView) -> str:
    return access_of(view.request.user).acts_in(view.job.namespace)


def _head(view: JobView, tab: str) -> dict[str, Any]:
    job = view.job
    return {
        "job": job,
        "state": view.state,
        "colour": colour_of(view.state),
        "ended_at": job.completed_at or job.deleted_at,
        "held": view.held,
        "freshness": view.fresh,
        "here": view.request.get_full_path(),
        "job_tabs": [
            (
                each.label,
                reverse(f"jobs:{each.url_name}", args=[job.uid]),
                each.url_name == tab,
                each.count(view) if each.count else None,
            )
            for each in TABS
            if (settings.USAGE_ENABLED or not each.of_usage)
            and (settings.JOB_LOGS or not each.of_logs)
        ],
        "commands": _commands(job),
        "actions": offered_actions(job) if _acts_as(view) else [],
        "now": view.now,
    }


def _commands(job: JobRecord) -> list[tuple[str, str]]:
    """Return commands of kubectl for the job; none once it is deleted."""
    if job.deleted_at is not None:
        return []
    describe = f"kubectl -n {job.namespace} describe ipujob {job.name}"
    values = {"instances": max(1, job.instances)}  # 0: the spec's own number is invalid
    lines = [
        (action.label, change_of(job, action.key, values).kubectl)
        for action in offered_actions(job)
        if action.key != RUN_AGAIN
    ]
    return [("Describe", describe), *lines]
