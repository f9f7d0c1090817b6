"""glue: the address of a job by its namespace and name, as kubectl names it.

It leads to the newest job of that name. Such an address can be known before the job is made, and
stays the same when it is deleted and made again.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

from django.http import Http404
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.problems import takes
from jobs.selectors import NO_JOB, find_newest

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase


@require_safe
@signed_in
@takes()
def named_job(request: HttpRequest, namespace: str, name: str) -> HttpResponseBase:
    """Lead to the newest job of this name. Raises Http404; a foreign job is as unknown as none."""
    uid = find_newest(scope_of(request.user), namespace, name)
    if uid is None:
        raise Http404(NO_JOB)
    return redirect("jobs:detail", uid)


def or_named(tab: str, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return the view of a job's tab, for an address that a job named like the tab has, too: where
    no job has the UID, a namespace of that name may have such a job."""

    @wraps(view)
    def answer(request: HttpRequest, uid: str) -> HttpResponseBase:
        try:
            return view(request, uid)
        except Http404:
            newest = find_newest(scope_of(request.user), uid, tab)
            if newest is None:
                raise
            return redirect("jobs:detail", newest)

    return answer
