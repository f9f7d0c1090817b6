"""glue: the audit: who changed what, from where, by which way, and the outcome.

Users see the entries of jobs in their namespaces and of what else they changed themselves;
administrators see all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

import django_filters
from django.contrib.auth import get_user_model
from django.db.models import Case, F, Q, TextField, Value, When
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers

from dashboard.actions.changes import ACTIONS
from dashboard.notify.events import spell_event
from ipuhub.api.views import FileList
from ipuhub.models import AuditEntry
from ipuhub.web.access import is_admin, scope_of
from ipuhub.web.audit import JOB, KINDS, OUTCOMES, SUBSCRIPTION, spell_fields
from ipuhub.web.columns import WIDEST, Column
from ipuhub.web.filters import Filters, InstantFilter
from ipuhub.web.lists import ListPage

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ipuhub.web.access import Caller


_OTHER_ACTIONS: Final = {
    "change-password": "Change password",
    "close": "Close",
    "delete": "Delete",
    "end": "End",
    "generate": "Generate",
    "grant": "Grant",
    "link": "Link",
    "pause": "Pause",
    "revoke": "Revoke",
}
"""Of what is no job; `create` and `resume` are of both."""


class AuditFilters(Filters):
    """By user, kind, namespace, name and UID (exact), action, outcome, and day."""

    user = django_filters.CharFilter(field_name="user_name", label="User")
    kind = django_filters.ChoiceFilter(
        label="Kind", choices=[(word, word) for word in KINDS], empty_label="Any"
    )
    namespace = django_filters.CharFilter(label="Namespace")
    name = django_filters.CharFilter(label="Name")
    uid = django_filters.CharFilter(label="UID")
    action = django_filters.ChoiceFilter(
        label="Action",
        choices=[*((each.key, each.label) for each in ACTIONS.values()), *_OTHER_ACTIONS.items()],
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


def visible_entries(user: Caller) -> QuerySet[AuditEntry]:
    """Return the entries that `user` may see: administrators all; others those about jobs of the
    namespaces that they see, and what else they changed themselves. `shown_address` is empty where
    the address is another user's, which only administrators see."""
    entries = AuditEntry.objects.defer("change")
    if is_admin(user):
        return entries.annotate(shown_address=F("address"))
    scope = scope_of(user)
    jobs = Q(kind=JOB) if scope.namespaces is None else Q(kind=JOB, namespace__in=scope.namespaces)
    # A ServiceAccount has no row, as entries of deleted users have none.
    own = Q(user=user.pk) if isinstance(user, get_user_model()) else Q(pk__in=())
    address = Case(When(own, then=F("address")), default=Value(""), output_field=TextField())
    return entries.filter(jobs | (~Q(kind=JOB) & own)).annotate(shown_address=address)


def _address(entry: AuditEntry) -> str:
    return reverse("jobs:detail", args=[entry.uid]) if entry.uid and entry.kind == JOB else ""


def _spell_name(entry: AuditEntry) -> str:
    return spell_event(entry.name) if entry.kind == SUBSCRIPTION else entry.name


def _in_words(change: dict[str, str | None]) -> dict[str, str | None]:
    """Return a changed field as people read it: the event of a subscription by its words."""
    if change["field"] != "event":
        return change
    return {name: spell_event(text) if text else text for name, text in change.items()}


COLUMNS = (
    Column("outcome", "Outcome", lambda entry: entry.outcome, kind="badge", phone="1.1"),
    Column(
        "action",
        "Action",
        lambda entry: entry.action,
        rendered=lambda entry: f"{entry.action.replace('-', ' ')} {entry.kind}",
        phone="1.3",
    ),
    Column(
        "name", "Name", lambda entry: entry.name, link=_address, rendered=_spell_name, phone="1.2"
    ),
    Column("namespace", "Namespace", lambda entry: entry.namespace),
    Column("user", "User", lambda entry: entry.user_name, phone="2.3"),
    Column("kubernetes_user", "Kubernetes user", lambda entry: entry.kubernetes_user, room=WIDEST),
    Column("via", "By", lambda entry: entry.via, room=1200),
    Column("at", "Age", lambda entry: entry.at, kind="age", phone="2.1"),
    Column(
        "changes",
        "Changed",
        lambda entry: spell_fields(entry.changes, "->"),
        rendered=lambda entry: spell_fields(map(_in_words, entry.changes), "→"),
        kind="note",
    ),
    Column("address", "From", lambda entry: entry.shown_address, sparse=True, room=WIDEST),
    Column("message", "Message", lambda entry: entry.message, kind="brief", phone="2.2"),
    Column("kind", "", lambda entry: entry.kind, kind="export"),
    Column("uid", "", lambda entry: entry.uid, kind="export"),
    Column("answered_at", "", lambda entry: entry.answered_at, kind="export"),
    Column("status", "", lambda entry: entry.status, kind="export"),
    Column(
        "kubernetes_groups", "", lambda entry: json.dumps(entry.kubernetes_groups), kind="export"
    ),
    Column("id", "", lambda entry: entry.pk, kind="export"),
)
audit_page = ListPage(
    title="Audit",
    noun="change",
    columns=COLUMNS,
    filters=AuditFilters,
    select_for=visible_entries,
    order=("at", "id"),
    empty="Nothing that you may see was changed through the dashboard, the API or a command.",
).view


class ChangedFieldSerializer(serializers.Serializer[Any]):
    """A changed field; null: no value. No secret is among them."""

    field = serializers.CharField()
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """A requested change. `outcome`: accepted, refused, unknown (no answer), sent (in progress, or
    the dashboard ended before the answer), or failed (a run of reports). `via`: page, session, or
    token or command with its name. `address`: of the client; administrators see all, others their
    own. `uid`: of a job, or the number of a report's run."""

    user = serializers.CharField(source="user_name", read_only=True)
    kind = serializers.ChoiceField(choices=KINDS, read_only=True)
    address = serializers.CharField(source="shown_address", read_only=True)
    changes = ChangedFieldSerializer(many=True, read_only=True)
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
            "address",
            "kind",
            "action",
            "namespace",
            "name",
            "uid",
            "changes",
            "outcome",
            "status",
            "message",
        ]
        read_only_fields = fields


@extend_schema_view(
    get=extend_schema(operation_id="audit_list", summary="Changes by users", tags=["audit"])
)
class AuditList(FileList[AuditEntry]):
    """Changes of jobs, rates, reports, subscriptions, tokens, roles and users, newest first."""

    queryset = AuditEntry.objects.none()
    serializer_class = AuditSerializer
    filterset_class = AuditFilters
    ordering = ("at", "id")
    columns = COLUMNS
    file_name = "changes"

    def get_queryset(self) -> QuerySet[AuditEntry]:
        """Return the entries that the caller may see."""
        return visible_entries(self.request.user)
