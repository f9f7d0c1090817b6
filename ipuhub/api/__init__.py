"""The API's foundation: authentication, permissions, filtering, paging, problems.

A list endpoint needs only this (for an example see `jobs/api.py`)::

    class JobList(ListAPIView[JobRecord]):
        serializer_class = JobSerializer            # shape only
        filterset_class = JobFilters                # the page's own filter class
        ordering = ("created_at", "id")             # newest first; `id` makes it unique

        def get_queryset(self) -> QuerySet[JobRecord]:
            return visible_jobs(scope_of(self.request.user))

Its URL module sets `app_name = "<app>-api"` and `urlpatterns`, which `dashboard/apiurls.py`
includes. Views raise PermissionDenied, Http404 or ValidationError with a sentence. The client gets
application/problem+json with that sentence as `detail`.
"""
