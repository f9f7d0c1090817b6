"""The API's foundation: authentication, permissions, filtering, paging, problems.

An app's list endpoint is this and nothing more (`jobs/api.py` is one)::

    class JobList(ListAPIView[JobRecord]):
        serializer_class = JobSerializer            # shape only
        filterset_class = JobFilters                # the page's own filter class
        ordering = ("created_at", "id")             # newest first; `id` makes it unique

        def get_queryset(self) -> QuerySet[JobRecord]:
            return visible_jobs(scope_of(self.request.user))

and its module of addresses has `app_name = "<app>-api"` and `urlpatterns`, which
`dashboard/apiurls.py` includes. Raise PermissionDenied, Http404 or ValidationError with a
sentence anywhere below: the client gets application/problem+json with that sentence as `detail`.
"""
