"""glue: the audit log: who changed which job, as which Kubernetes user, and the API server's
answer.

Users see the entries of their namespaces; administrators see all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import django_filters
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers

from dashboard.actions.audit import OUTCOMES
from dashboard.actions.changes import ACTIONS
from ipuhub.api.views import FileList
from ipuhub.models import AuditEntry
from ipuhub.web.access import scope_of
from ipuhub.web.columns import Column
from ipuhub.web.filters import Filters, InstantFilter
from ipuhub.web.lists import ListPage

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ipuhub.web.access import Scope


class AuditFilters(Filters):
    """By user, namespace, name and UID of the job (exact), action, outcome, and day."""

    user = django_filters.CharFilter(field_name="user_name", label="User")
    namespace = django_filters.CharFilter(label="Namespace")
    name = django_filters.CharFilter(label="Job")
    uid = django_filters.CharFilter(label="UID")
    action = django_filters.ChoiceFilter(
        label="Action",
        choices=[(each.key, each.label) for each in ACTIONS.values()],
        empty_label="Any",
    )
    outcome = django_filters.ChoiceFilter(
        label="Outcome", choices=[(word, word) for word in OUTCOMES], empty_label="Any"
    )
    since = InstantFilter(field_name="at", lookup_expr="gte", label="From")
    until = InstantFilter(field_name="at", lookup_expr="lt", label="Until", end=True)

    class Meta:
        model = AuditEntry
        fields: tuple[str, ...] = ()


def visible_entries(scope: Scope) -> QuerySet[AuditEntry]:
    """Return the entries of the namespaces that `scope` covers."""
    entries = AuditEntry.objects.defer("change")
    if scope.namespaces is None:
        return entries
    return entries.filter(namespace__in=sorted(scope.namespaces))


def _address(entry: AuditEntry) -> str:
    return reverse("jobs:detail", args=[entry.uid]) if entry.uid else ""


COLUMNS = (
    Column("outcome", "Outcome", lambda entry: entry.outcome, kind="badge", phone="1.1"),
    Column("action", "Action", lambda entry: entry.action, phone="1.3"),
    Column("name", "Job", lambda entry: entry.name, link=_address, phone="1.2"),
    Column("namespace", "Namespace", lambda entry: entry.namespace),
    Column("user", "User", lambda entry: entry.user_name, phone="2.3"),
    Column("kubernetes_user", "Kubernetes user", lambda entry: entry.kubernetes_user),
    Column("via", "By", lambda entry: entry.via),
    Column("at", "Age", lambda entry: entry.at, kind="age", phone="2.1"),
    Column("message", "Message", lambda entry: entry.message, kind="brief", phone="2.2"),
    Column("uid", "", lambda entry: entry.uid, kind="export"),
    Column("answered_at", "", lambda entry: entry.answered_at, kind="export"),
    Column("status", "", lambda entry: entry.status, kind="export"),
    Column(
        "kubernetes_groups", "", lambda entry: json.dumps(entry.kubernetes_groups), kind="export"
    ),
)
audit_page = ListPage(
    title="Audit",
    noun="change",
    columns=COLUMNS,
    filters=AuditFilters,
    select=visible_entries,
    order=("at", "id"),
    empty="No job was changed through the dashboard or the API.",
).view


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """A requested change. `outcome`: accepted, refused, unknown (no answer), or sent
    (the dashboard ended before the answer). `via`: page, or token with its name."""

    user = serializers.CharField(source="user_name", read_only=True)
    kubernetes_groups = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = AuditEntry
        fields: ClassVar = [
            "id",
            "at",
            "answered_at",
            "user",
            "kubernetes_user",
            "kubernetes_groups",
            "via",
            "action",
            "namespace",
            "name",
            "uid",
            "outcome",
            "status",
            "message",
        ]
        read_only_fields = fields


@extend_schema_view(
    get=extend_schema(operation_id="audit_list", summary="Changes of jobs", tags=["audit"])
)
class AuditList(FileList[AuditEntry]):
    """Changes of jobs through the dashboard and the API, newest first."""

    queryset = AuditEntry.objects.none()
    serializer_class = AuditSerializer
    filterset_class = AuditFilters
    ordering = ("at", "id")
    columns = COLUMNS
    file_name = "changes"

    def get_queryset(self) -> QuerySet[AuditEntry]:
        """Return the entries of the caller's namespaces."""
        return visible_entries(scope_of(self.request.user))
