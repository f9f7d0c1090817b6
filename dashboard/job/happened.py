"""glue: the time line of a job, for its page and the API: states, attempts, partitions, pods,
Kubernetes Events and what users requested, merged into one list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from dashboard.job.events import KINDS, list_events, newest_within, with_requests
from dashboard.job.usage import SHOWN, read_held
from ipuhub.api.auth import IsSignedIn
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.views import FORMS, JSON, PlainView, form_of
from ipuhub.models import AuditEntry
from ipuhub.web.access import scope_of
from ipuhub.web.audit import JOB
from ipuhub.web.columns import file_columns
from ipuhub.web.exports import export
from jobs.selectors import find_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from dashboard.job.events import Event
    from jobs.models import JobRecord

SHOWN_EVENTS: Final = 300


def read_timeline(job: JobRecord, happened: Sequence[Event], most: int | None) -> list[Event]:
    """Return what happened to a job (`list_events`) with the newest requests of users, newest
    first. Costs one query."""
    requests = (
        AuditEntry.objects.filter(kind=JOB, uid=job.uid).defer("change").order_by("-at")[:most]
    )
    return with_requests(happened, requests, job.completed_at)


class TimelineEventSerializer(serializers.Serializer[Any]):
    """An event of a job. `what` says what happened, `state` is the state that began with it, where
    one did."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=KINDS)
    what = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()


class TimelineSerializer(serializers.Serializer[Any]):
    """The newest events of a job, newest first; `hidden`: the number of older ones, which only the
    files have."""

    hidden = serializers.IntegerField()
    results = TimelineEventSerializer(many=True)


class JobTimeline(PlainView):
    """All that happened to a job in one list, as its page has it: states, attempts, partitions,
    pods, requests of users and Kubernetes Events. No message is there twice in one second."""

    permission_classes = (IsSignedIn,)
    content_negotiation_class = AnyAccept
    formats = FORMS
    columns = file_columns(TimelineEventSerializer().fields)
    parameters = frozenset({"format"})

    @extend_schema(
        operation_id="jobs_timeline",
        summary="A job's time line",
        tags=["jobs"],
        responses=TimelineSerializer,
    )
    def get(self, request: Request, uid: str, **_form: str) -> HttpResponseBase:
        """Return the newest events, or a file of all. Raises BadFilter and Http404."""
        form = form_of(request)
        most = SHOWN_EVENTS if form == JSON else None
        job = find_job(scope_of(request.user), uid)
        held = read_held(job, timezone.now(), SHOWN if most else None)
        events = read_timeline(job, list_events(job, held), most)
        if form != JSON:
            return export(form, self.columns, events, "timeline")
        newest = newest_within(events, SHOWN_EVENTS)
        found = {"hidden": len(events) - len(newest), "results": newest}
        return Response(TimelineSerializer(found).data)
