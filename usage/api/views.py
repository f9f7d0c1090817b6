"""glue: the rows behind the sums in the API: pods, and what the record lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.functional import cached_property
from drf_spectacular.utils import extend_schema, extend_schema_view

from ipuhub.api.permissions import IsAccountant
from ipuhub.api.views import FileList
from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.access import usage_scope_of
from usage.api.serializers import FaultSerializer, GapSerializer, LifetimeSerializer
from usage.filters import FaultFilters, GapFilters, LifetimeFilters
from usage.models import PodLifetime
from usage.retention.purged import say_purged
from usage.selectors import add_pod_costs, faults, gaps, visible_lifetimes
from usage.tables import FAULT_COLUMNS, GAP_COLUMNS, LIFETIME_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from rest_framework.request import Request

    from ipuhub.web.access import Scope


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_lifetimes",
        summary="Pods, newest first",
        tags=["usage"],
    )
)
class LifetimeList(FileList[PodLifetime]):
    """The pods behind the sums."""

    queryset = PodLifetime.objects.none()
    serializer_class = LifetimeSerializer
    filterset_class = LifetimeFilters
    columns = LIFETIME_COLUMNS
    file_name = "pods"

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page, or the file; older rows that were purged are said in a header."""
        answer = super().list(request, *args, **kwargs)
        say_purged(answer)
        return answer

    @cached_property
    def scope(self) -> Scope:
        """What the caller may see."""
        return usage_scope_of(self.request.user)

    def get_queryset(self) -> QuerySet[PodLifetime]:
        """Return the pods of the caller's namespaces."""
        return visible_lifetimes(self.scope)

    def prepare(self, rows: Sequence[PodLifetime]) -> None:
        """Add what they cost."""
        asked = LifetimeFilters(self.request.query_params, queryset=self.queryset)
        asked.form.is_valid()
        add_pod_costs(self.scope, asked.form.cleaned_data, rows, timezone.now())


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_faults",
        summary="Faults, newest first",
        tags=["usage"],
    )
)
class FaultList(FileList[RecordFault]):
    """What the recorders could not take as it stood; for administrators."""

    queryset = RecordFault.objects.none()
    serializer_class = FaultSerializer
    filterset_class = FaultFilters
    permission_classes = (IsAccountant,)
    ordering = ("last_at", "id")
    columns = FAULT_COLUMNS
    file_name = "faults"

    def get_queryset(self) -> QuerySet[RecordFault]:
        """Return all of them."""
        return faults(usage_scope_of(self.request.user))


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_gaps",
        summary="Gaps, newest first",
        tags=["usage"],
    )
)
class GapList(FileList[WatchGap]):
    """When watches saw nothing, so that the record may lack something."""

    queryset = WatchGap.objects.none()
    serializer_class = GapSerializer
    filterset_class = GapFilters
    ordering = ("began_at", "id")
    columns = GAP_COLUMNS
    file_name = "gaps"

    def get_queryset(self) -> QuerySet[WatchGap]:
        """Return all of them."""
        return gaps(usage_scope_of(self.request.user))
