"""glue: the API filters by the same classes, and with the same refusals, as the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_filters.rest_framework import DjangoFilterBackend

from ipuhub.web.filters import BadFilter, apply_filters

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from rest_framework.request import Request
    from rest_framework.views import APIView


class PageFilterBackend(DjangoFilterBackend):  # type: ignore[misc]
    """Applies the view's `filterset_class`. Raises BadFilter and PermissionDenied.

    A view that answers in other forms than JSON names them in `formats`.
    """

    def filter_queryset(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> QuerySet[Any]:
        """Return the rows that pass."""
        answers = getattr(view, "formats", ("json",))
        asked = request.query_params.get("format") or "json"
        if asked not in answers:
            raise BadFilter([f"format: {asked!r} is none of {', '.join(answers)}."])
        kind = self.get_filterset_class(view, queryset)
        if kind is None:
            return queryset
        return apply_filters(kind, request.query_params, queryset, request.user)
