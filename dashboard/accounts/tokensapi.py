"""glue: the caller's API tokens in the API: list, make (shown once), revoke."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from dashboard.account import NOT_YOURS, TOKEN_COLUMNS, make_own_token
from dashboard.accounts.usersapi import TokenSerializer
from ipuhub.api.idempotency import SecretField, idempotent
from ipuhub.api.parsing import read_body
from ipuhub.api.schema import NoBodySerializer, body_example
from ipuhub.api.scopes import ACCESS, SCOPES, read_scopes
from ipuhub.api.views import FileList, PlainView
from ipuhub.models import ApiToken
from ipuhub.web.audit import author_of
from ipuhub.web.columns import file_columns
from ipuhub.web.grants import delete_token

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from rest_framework.request import Request

_MOST_DAYS: Final = 3650
_TEXT: Final = "token"


@body_example({"name": "night-job", "days": 90, "scopes": ["read"]})
class TokenRequestSerializer(serializers.Serializer[Any]):
    """The fields of a new token."""

    name = serializers.CharField(max_length=100)
    days = serializers.IntegerField(
        min_value=0, max_value=_MOST_DAYS, help_text="How long it is valid; 0: without an end."
    )
    scopes = serializers.MultipleChoiceField(choices=list(SCOPES), allow_empty=False)


class NewTokenSerializer(TokenSerializer):
    """A new token, with its text in `token`."""

    token = SecretField()

    class Meta(TokenSerializer.Meta):
        fields: ClassVar = [*TokenSerializer.Meta.fields, _TEXT]
        read_only_fields = fields


class TokenList(FileList[ApiToken]):
    """The caller's tokens, newest first."""

    queryset = ApiToken.objects.none()
    serializer_class = TokenSerializer
    ordering = ("created_at", "id")
    columns = (*file_columns(["id"]), *TOKEN_COLUMNS)
    file_name = "tokens"
    write_scope = ACCESS

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Return the caller's tokens."""
        return _own(self.request)

    @extend_schema(operation_id="tokens_list", summary="API tokens", tags=["users"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The caller's API tokens, newest first, without their texts."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="tokens_create",
        summary="Make an API token",
        tags=["users"],
        request=TokenRequestSerializer,
        responses={201: NewTokenSerializer},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Make a token of the caller. A token makes no token that may do more than itself, or that
        is valid for longer. Raises ValidationError."""
        given, now = read_body(TokenRequestSerializer, request), timezone.now()
        days, scopes = given["days"], set(given["scopes"])
        ends = now + dt.timedelta(days=days) if days else None
        if request.auth is not None:
            _require_no_more(cast("ApiToken", request.auth), scopes, ends)
        made, text = make_own_token(author_of(request), given["name"], ends, scopes)
        data = {**TokenSerializer(made).data, _TEXT: text}
        return Response(data, status=status.HTTP_201_CREATED)


class OneToken(PlainView):
    """One of the caller's tokens."""

    write_scope = ACCESS

    @extend_schema(
        operation_id="tokens_retrieve",
        summary="An API token",
        tags=["users"],
        responses=TokenSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """One of the caller's tokens, without its text. Raises Http404."""
        return Response(TokenSerializer(_find(request, pk)).data)

    @extend_schema(
        operation_id="tokens_revoke",
        summary="Revoke an API token",
        tags=["users"],
        responses={204: None},
    )
    @idempotent()
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke one of the caller's tokens: it stops working at once. Raises Http404 and
        ValidationError."""
        owner = _find(request, pk).user
        read_body(NoBodySerializer, request)
        if delete_token(pk, author_of(request), owner) is None:
            raise Http404(NOT_YOURS)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _require_no_more(own: ApiToken, scopes: set[str], ends: dt.datetime | None) -> None:
    """Raise ValidationError if a new token could do more than the token that makes it."""
    errors = {}
    if more := scopes - read_scopes(own.scopes):
        errors["scopes"] = [f"This token does not have {', '.join(sorted(more))} itself."]
    if own.expires_at is not None and (ends is None or ends > own.expires_at):
        errors["days"] = [f"This token itself ends at {own.expires_at:%Y-%m-%d %H:%M} UTC."]
    if errors:
        raise ValidationError(errors)


def _own(request: Request) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user__username=request.user.get_username())


def _find(request: Request, pk: int) -> ApiToken:
    found = _own(request).filter(pk=pk).first()
    if found is None:
        raise Http404(NOT_YOURS)
    return found
