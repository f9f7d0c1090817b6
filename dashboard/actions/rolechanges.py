"""glue: role changes, a view of the audit for administrators: granted and revoked roles, and tokens
of users that others revoked; page, files and API."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import django_filters
from django.db.models import BooleanField, Case, F, Q, TextField, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Concat
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers

from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.api.views import FileList
from ipuhub.models import AuditEntry
from ipuhub.roles import ROLES
from ipuhub.web.access import require_admin
from ipuhub.web.audit import ACCEPTED, ROLE, TOKEN
from ipuhub.web.columns import Column
from ipuhub.web.filters import Filters, InstantFilter
from ipuhub.web.lists import ListPage

if TYPE_CHECKING:
    from django.db.models import QuerySet

_BEFORE, _AFTER = KT("changes__0__before"), KT("changes__0__after")
_REVOKED: Final = "token "


def read_role_changes() -> QuerySet[AuditEntry]:
    """Return the entries of accepted changes of roles, and of tokens that were revoked by others
    than their owners. `of_user`: whose role or token; `role`: also `token NAME`."""
    entries = AuditEntry.objects.defer("change").filter(kind__in=(ROLE, TOKEN), outcome=ACCEPTED)
    of_user = Case(When(kind=ROLE, then=F("name")), default=_BEFORE, output_field=TextField())
    role = Case(
        When(kind=ROLE, then=Coalesce(_AFTER, _BEFORE)),
        default=Concat(Value(_REVOKED), F("name")),
        output_field=TextField(),
    )
    is_granted = Case(When(action="grant", then=True), default=False, output_field=BooleanField())
    named = entries.annotate(of_user=of_user, role=role, is_granted=is_granted)
    of_others = Q(kind=TOKEN, action="revoke") & ~Q(of_user=F("user_name"))
    return named.filter(Q(kind=ROLE) | of_others)


class RoleChangeFilters(Filters):
    """By user, role, namespace, who did it, and day."""

    user = django_filters.CharFilter(field_name="of_user", label="User")
    by = django_filters.CharFilter(field_name="user_name", label="By")
    role = django_filters.ChoiceFilter(
        label="Role", choices=[(role, role) for role in ROLES], empty_label="Any"
    )
    namespace = django_filters.CharFilter(label="Namespace")
    since = InstantFilter(field_name="at", lookup_expr="gte", label="From")
    until = InstantFilter(field_name="at", lookup_expr="lt", label="Until", end=True)

    class Meta:
        model = AuditEntry
        fields: tuple[str, ...] = ()


COLUMNS: Final = (
    Column("user", "User", lambda change: change.of_user, phone="1.2"),
    Column(
        "change",
        "Change",
        lambda change: "granted" if change.is_granted else "revoked",
        phone="1.1",
    ),
    Column("role", "Role", lambda change: change.role, phone="1.3"),
    Column("namespace", "Namespace", lambda change: change.namespace, phone="2.2"),
    Column("by", "By", lambda change: change.user_name, phone="2.3"),
    Column("via", "Way", lambda change: change.via),
    Column("at", "Age", lambda change: change.at, kind="age", phone="2.1"),
    Column("is_granted", "", lambda change: change.is_granted, kind="export"),
    Column("id", "", lambda change: change.pk, kind="export"),
)
role_changes = ListPage(
    title="Role changes",
    noun="change",
    columns=COLUMNS,
    filters=RoleChangeFilters,
    select=lambda _scope: read_role_changes(),
    require=require_admin,
    order=("at", "id"),
    empty="No role was granted or revoked.",
).view


class RoleChangeSerializer(serializers.ModelSerializer[AuditEntry]):
    """A role that was granted or revoked, or a token that another user revoked (`role` is `token`
    with its name, `namespace` is empty); `id` is its number in the audit. `namespace` is * for all;
    `by` is a user, the system's user of a command, or `sign-in` for the groups of a provider; `via`
    is the way: page, session, sign-in, or token or command with its name."""

    by = serializers.CharField(source="user_name", read_only=True)
    user = serializers.CharField(source="of_user", read_only=True)
    role = serializers.CharField(read_only=True)
    is_granted = serializers.BooleanField(read_only=True)

    class Meta:
        model = AuditEntry
        fields: ClassVar = ["id", "at", "by", "user", "role", "namespace", "is_granted", "via"]
        read_only_fields = fields


@extend_schema_view(
    get=extend_schema(operation_id="role_changes_list", summary="Changed roles", tags=["audit"])
)
class RoleChangeList(FileList[AuditEntry]):
    """Granted and revoked roles, and tokens that others than their owners revoked, newest first;
    administrators only."""

    queryset = AuditEntry.objects.none()
    serializer_class = RoleChangeSerializer
    filterset_class = RoleChangeFilters
    permission_classes = (IsSignedIn, IsAdmin)
    ordering = ("at", "id")
    columns = COLUMNS
    file_name = "role-changes"

    def get_queryset(self) -> QuerySet[AuditEntry]:
        """Return all of them."""
        return read_role_changes()
