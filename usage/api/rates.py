"""glue: rates in the API, for administrators and accountants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError as Refused
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from ipuhub.api.auth import IsAccountant
from ipuhub.api.idempotency import idempotent
from ipuhub.api.parsing import read_body
from ipuhub.api.views import FileList, PlainView
from ipuhub.web.audit import author_of
from ipuhub.web.columns import file_columns
from usage.api.reportserializers import (
    RateEndSerializer,
    RatePreviewSerializer,
    RateSerializer,
)
from usage.models import Rate
from usage.rates.pages import check_rate, end_rate_of, set_rate_of
from usage.rates.preview import preview

if TYPE_CHECKING:
    from rest_framework.request import Request


COLUMNS: Final = file_columns(RateSerializer.Meta.fields)


class RateList(FileList[Rate]):
    """All rates, newest first, with the users who set and ended them."""

    queryset = Rate.objects.all()
    serializer_class = RateSerializer
    permission_classes = (IsAccountant,)
    ordering = ("created_at", "id")
    columns = COLUMNS
    file_name = "rates"

    @extend_schema(operation_id="usage_rates_list", summary="Rates", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The rates, newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="usage_rates_create",
        summary="Set a rate",
        tags=["usage"],
        responses={201: RateSerializer},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Set a rate. Raises ValidationError."""
        fields = read_body(RateSerializer, request)
        try:
            rate = set_rate_of(author_of(request), Rate(**fields))
        except Refused as error:
            raise ValidationError(error.message_dict) from error
        return Response(RateSerializer(rate).data, status=status.HTTP_201_CREATED)


class RatePreview(PlainView):
    """The cost of last month under a new rate; nothing is stored."""

    permission_classes = (IsAccountant,)

    @extend_schema(
        operation_id="usage_rates_preview",
        summary="Preview a rate",
        tags=["usage"],
        request=RateSerializer,
        responses=RatePreviewSerializer,
    )
    def post(self, request: Request) -> Response:
        """Return what the rate would have cost last month. Raises ValidationError."""
        fields = read_body(RateSerializer, request)
        now = timezone.now()
        try:
            rate = check_rate(Rate(**fields), request.user.get_username(), now)
        except Refused as error:
            raise ValidationError(error.message_dict) from error
        return Response(RatePreviewSerializer(preview(rate, now, settings.REPORT_ZONE)).data)


class RateEnd(PlainView):
    """The end of a rate."""

    permission_classes = (IsAccountant,)

    @extend_schema(
        operation_id="usage_rates_end",
        summary="End a rate",
        tags=["usage"],
        request=RateEndSerializer,
        responses=RateSerializer,
    )
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        """End a rate. Raises ValidationError and Http404."""
        until = read_body(RateEndSerializer, request)["valid_until"]
        rate = Rate.objects.filter(pk=pk).first()
        if rate is None:
            raise Http404("Rate not found.")
        try:
            end_rate_of(author_of(request), rate, until)
        except Refused as error:
            raise ValidationError(error.message_dict) from error
        return Response(RateSerializer(rate).data)
