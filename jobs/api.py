"""glue: jobs in the API; a job's pods and usage are `dashboard.jobapi`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.generics import ListAPIView, RetrieveAPIView

from ipuhub.web.access import scope_of
from jobs.filters import JobFilters
from jobs.models import JobRecord
from jobs.selectors import find_job, listed_jobs
from jobs.serializers import JobDetailSerializer, JobSerializer
from jobs.states import NO_JOB

if TYPE_CHECKING:
    from django.db.models import QuerySet


@extend_schema_view(
    get=extend_schema(operation_id="jobs_list", summary="Jobs, newest first", tags=["jobs"])
)
class JobList(ListAPIView[JobRecord]):
    """All jobs that the caller may see, deleted ones too, newest first."""

    queryset = JobRecord.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilters
    ordering = ("created_at", "id")

    def get_queryset(self) -> QuerySet[JobRecord]:
        """Return the jobs of the caller's namespaces."""
        return listed_jobs(scope_of(self.request.user))


@extend_schema_view(get=extend_schema(operation_id="jobs_read", summary="One job", tags=["jobs"]))
class JobDetail(RetrieveAPIView[JobRecord]):
    """One job by its UID, with attempts and transitions; it stays after its deletion."""

    queryset = JobRecord.objects.none()
    serializer_class = JobDetailSerializer
    lookup_field = "uid"
    filter_backends = ()

    def get_object(self) -> JobRecord:
        """Return it. Raises Http404 where there is none, or none that the caller may see."""
        job = find_job(scope_of(self.request.user), self.kwargs["uid"])
        if job is None:
            raise Http404(NO_JOB)
        return job
