"""glue: the list of jobs with their cost, page and API, and suggestions for its filters. A
composition root: joins jobs and the rates of usage.

Cost is shown for jobs of namespaces whose rates the user may see. It is computed once for all rows
of a page, or of a chunk of a file.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.web.access import may_see_cost, scope_of, signed_in
from ipuhub.web.filters import filter_text
from ipuhub.web.problems import takes
from jobs.api import JobList, JobSerializer
from jobs.selectors import NAMED, names_like, newest_names
from jobs.views import JOBS
from usage.api.serializers import COST_FIELDS, LineCostSerializer
from usage.rates.linecosts import read_job_costs
from usage.tables import COST, COST_EXPORTS
from usage.time.months import usage_zone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ipuhub.web.access import Caller
    from ipuhub.web.filters import Filters
    from jobs.models import JobRecord

_MOST: Final = 200  # of a kind


def add_costs(user: Caller, rows: Sequence[Any]) -> None:
    """Set `cost` of the jobs whose cost the user may see."""
    priced = [job for job in rows if may_see_cost(user, job.namespace)]
    if not priced:
        return
    now = _minute(timezone.now())
    began = min(now, *(job.created_at for job in priced))
    costs = read_job_costs([job.uid for job in priced], began, now, usage_zone())
    for job in priced:
        job.cost = costs.get((job.uid, job.namespace))


def _minute(now: datetime) -> datetime:
    """Up to when costs count: running jobs would otherwise change the page with each poll."""
    return now.replace(second=0, microsecond=0)


def _prepare(request: HttpRequest, _filters: Filters, rows: Sequence[Any]) -> None:
    add_costs(request.user, rows)


_COLUMNS: Final = (*JOBS.columns, COST, *COST_EXPORTS)
job_list = dataclasses.replace(JOBS, columns=_COLUMNS, prepare=_prepare).view


class ListedJobSerializer(LineCostSerializer, JobSerializer):
    """A job in a list, with the cost of its pods and partitions up to now. `state` is its last
    status, or Deleted if it was deleted before it ended; `estimated`: `deleted_at` is when the
    recorder noticed the deletion."""

    class Meta(JobSerializer.Meta):
        fields = [*JobSerializer.Meta.fields, *COST_FIELDS]  # noqa: RUF012
        read_only_fields = fields


class PricedJobs(JobList):
    """All jobs that the caller may see, including deleted jobs, newest first or by `sort`."""

    serializer_class = ListedJobSerializer
    columns = _COLUMNS
    is_of_rows = True

    def prepare(self, rows: Sequence[JobRecord]) -> None:
        """Add what they cost."""
        add_costs(self.request.user, rows)

    def clock(self, now: datetime) -> datetime:
        """Return up to when costs count; of jobs that ended in a span up to now, the time."""
        return now if "ended" in self.request.query_params else _minute(now)


@require_safe
@signed_in
@takes()
def job_suggestions(request: HttpRequest) -> HttpResponseBase:
    """Show the names that the filters of the list suggest, of jobs that the user may see."""
    scope = scope_of(request.user)
    found: dict[str, list[str]] = {"name": newest_names(scope, _MOST)}
    found |= {kind: [] for kind in NAMED}
    for kind, name in names_like(scope, "", _MOST):
        found[kind].append(filter_text(name))
    return render(request, "lists/_suggestions.html", {"suggestions": found})
