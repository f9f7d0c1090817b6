"""glue: users in the API, for administrators: with their roles and tokens, and grants of roles;
by the rules of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import django_filters
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError as Refused
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from dashboard.users import NOT_FOUND, OF_A_ROW, USER_COLUMNS, RoleForm, change_role, read_user
from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.api.idempotency import idempotent
from ipuhub.api.parsing import read_body, read_form
from ipuhub.api.schema import NoBodySerializer, body_example
from ipuhub.api.scopes import ACCESS
from ipuhub.api.views import FileList, PlainView
from ipuhub.models import ApiToken
from ipuhub.roles import ROLES
from ipuhub.web.audit import author_of
from ipuhub.web.filters import Filters
from ipuhub.web.grants import delete_token
from ipuhub.web.keyset import Order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from rest_framework.request import Request

    from dashboard.users import Row
    from ipuhub.web.columns import Column

_GRANT: Final = {"user": "ann", "role": "viewer", "namespace": "team-a"}


class RoleSerializer(serializers.Serializer[Any]):
    """A role in a namespace (`*`: in all). `from_groups`: a group of single sign-on gives it, and
    each sign-in gives it again."""

    role = serializers.ChoiceField(choices=list(ROLES))
    namespace = serializers.CharField()
    from_groups = serializers.BooleanField()


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    """An API token, without its text, which is stored nowhere. `last_used_at`: by the minute."""

    class Meta:
        model = ApiToken
        fields: ClassVar = ["id", "name", "scopes", "created_at", "expires_at", "last_used_at"]
        read_only_fields = fields


class UserSerializer(serializers.Serializer[User]):
    """A user. `is_external`: of single sign-on; `last_sign_in`: in the dashboard, null: never."""

    name = serializers.CharField()
    is_active = serializers.BooleanField()
    is_external = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    last_sign_in = serializers.DateTimeField(allow_null=True)
    roles = RoleSerializer(many=True)
    tokens = TokenSerializer(many=True)

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return a user, prepared by the list, as the page shows them."""
        row: Row = instance.row
        roles = [
            {"role": grant.role, "namespace": grant.namespace, "from_groups": from_groups}
            for grant, from_groups in row.roles
        ]
        return super().to_representation(cast("User", {**row._asdict(), "roles": roles}))


@body_example(_GRANT)
class GrantSerializer(serializers.Serializer[Any]):
    """A role of a user in a namespace; `*`: in all."""

    user = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=list(ROLES))
    namespace = serializers.CharField(max_length=63)


class ChangedSerializer(serializers.Serializer[Any]):
    """The result of a change. `changed`: false if the user had the role already, or not at all."""

    changed = serializers.BooleanField()


class UserFilters(Filters):
    """By part of the name."""

    sorts: ClassVar = {
        "created": Order(("date_joined", "id")),
        "name": Order(("username", "id")),
    }

    name = django_filters.CharFilter(field_name="username", lookup_expr="icontains", label="Name")

    class Meta:
        model = User
        fields: tuple[str, ...] = ()


def _of_user(column: Column) -> Column:
    """Return a column of the page's files for users that the list prepared."""
    return replace(column, value=lambda user: column.value(user.row))


@extend_schema_view(get=extend_schema(operation_id="users_list", summary="Users", tags=["users"]))
class UserList(FileList[User]):
    """Users with their roles and tokens, newest first or by `sort`; administrators only."""

    queryset = User.objects.none()
    serializer_class = UserSerializer
    filterset_class = UserFilters
    permission_classes = (IsSignedIn, IsAdmin)
    ordering = ("date_joined", "id")
    columns = tuple(map(_of_user, USER_COLUMNS))
    file_name = "users"

    def get_queryset(self) -> QuerySet[User]:
        """Return all users."""
        return get_user_model().objects.prefetch_related(*OF_A_ROW)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Add what the page shows of them."""
        for user in rows:
            user.row = read_user(user)


class TokenOfUser(PlainView):
    """A token of any user, for administrators."""

    permission_classes = (IsSignedIn, IsAdmin)
    write_scope = ACCESS

    @extend_schema(
        operation_id="users_tokens_retrieve",
        summary="A user's API token",
        tags=["users"],
        responses=TokenSerializer,
    )
    def get(self, _request: Request, pk: int) -> Response:
        """A token of any user, without its text; administrators only. Raises Http404."""
        found = ApiToken.objects.filter(pk=pk).first()
        if found is None:
            raise Http404(NOT_FOUND)
        return Response(TokenSerializer(found).data)

    @extend_schema(
        operation_id="users_tokens_revoke",
        summary="Revoke a user's API token",
        tags=["users"],
        responses={204: None},
    )
    @idempotent()
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke a token of any user; administrators only. It stops working at once, and the list
        of role changes says who did it. Raises Http404 and ValidationError."""
        read_body(NoBodySerializer, request)
        if delete_token(pk, author_of(request)) is None:
            raise Http404(NOT_FOUND)
        return Response(status=status.HTTP_204_NO_CONTENT)


class _RoleChange(PlainView):
    """Base of the changes of roles. They need a scope of their own: who changes roles can give
    themselves every right."""

    permission_classes = (IsSignedIn, IsAdmin)
    write_scope = ACCESS
    change: ClassVar[str]

    def make(self, request: Request) -> Response:
        """Do it. Raises ValidationError."""
        body = read_body(GrantSerializer, request)
        given = read_form(RoleForm({**body, "change": self.change}))
        try:
            changed = change_role(author_of(request), given)
        except Refused as error:
            raise ValidationError({"user": error.messages}) from error
        return Response(ChangedSerializer({"changed": changed}).data)


class GrantRole(_RoleChange):
    """Grant a role."""

    change = "grant"

    @extend_schema(
        operation_id="roles_grant",
        summary="Grant a role",
        tags=["users"],
        request=GrantSerializer,
        responses=ChangedSerializer,
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Grant a user a role; administrators only. Raises ValidationError."""
        return self.make(request)


class RevokeRole(_RoleChange):
    """Revoke a role."""

    change = "revoke"

    @extend_schema(
        operation_id="roles_revoke",
        summary="Revoke a role",
        tags=["users"],
        request=GrantSerializer,
        responses=ChangedSerializer,
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Revoke a role of a user; administrators only, and not their own role admin.

        Raises ValidationError.
        """
        return self.make(request)
