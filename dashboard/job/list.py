"""glue: the list of jobs with their cost, and suggestions for its filters. A composition root:
joins jobs and the rates of usage.

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
from jobs.selectors import NAMED, names_like, newest_names
from jobs.views import JOBS
from usage.rates.linecosts import read_job_costs
from usage.tables import COST, COST_EXPORTS
from usage.time.months import usage_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ipuhub.web.filters import Filters

_MOST: Final = 200  # of a kind


def _add_costs(request: HttpRequest, _filters: Filters, rows: Sequence[Any]) -> None:
    """Set `cost` of the jobs whose cost the user may see."""
    priced = [job for job in rows if may_see_cost(request.user, job.namespace)]
    if not priced:
        return
    # Whole minutes: running jobs would otherwise change the page with each poll.
    now = timezone.now().replace(second=0, microsecond=0)
    began = min(now, *(job.created_at for job in priced))
    costs = read_job_costs([job.uid for job in priced], began, now, usage_zone())
    for job in priced:
        job.cost = costs.get((job.uid, job.namespace))


job_list = dataclasses.replace(
    JOBS, columns=(*JOBS.columns, COST, *COST_EXPORTS), prepare=_add_costs
).view


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
