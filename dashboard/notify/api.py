"""glue: notifications in the API: the caller's own, and all for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import django_filters
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers

from dashboard.notify.events import EVENTS, TEST
from dashboard.notify.outbox import DEAD, QUEUED, SENT
from ipuhub.api.views import FileList
from ipuhub.models import Notification
from ipuhub.web.access import is_admin
from ipuhub.web.columns import Column
from ipuhub.web.filters import Filters, InstantFilter

if TYPE_CHECKING:
    from django.db.models import QuerySet


class NotificationFilters(Filters):
    """By event, state and day."""

    event = django_filters.ChoiceFilter(
        label="Event", choices=[(key, key) for key in (*EVENTS, TEST)], empty_label="Any"
    )
    state = django_filters.ChoiceFilter(
        label="State", choices=[(key, key) for key in (QUEUED, SENT, DEAD)], empty_label="Any"
    )
    since = InstantFilter(field_name="at", lookup_expr="gte", label="From")
    until = InstantFilter(field_name="at", lookup_expr="lt", label="Until", end=True)

    class Meta:
        model = Notification
        fields: tuple[str, ...] = ()


COLUMNS = (
    Column("at", "At", lambda row: row.at, kind="ago"),
    Column("event", "Event", lambda row: row.event),
    Column("subject", "Subject", lambda row: row.subject),
    Column("state", "State", lambda row: row.state),
    Column("attempts", "Attempts", lambda row: row.attempts),
    Column("sent_at", "Sent", lambda row: row.sent_at, kind="ago"),
    Column("message", "Answer", lambda row: row.message),
    Column("target", "To", lambda row: row.subscription.target),
    Column("owner", "User", lambda row: row.subscription.owner.get_username()),
    Column("next_at", "", lambda row: row.next_at, kind="export"),
    Column("id", "", lambda row: row.pk, kind="export"),
)


class NotificationSerializer(serializers.ModelSerializer[Notification]):
    """A notification. `state`: queued, sent, or dead (given up after IPUHUB_NOTIFY_ATTEMPTS)."""

    owner = serializers.CharField(source="subscription.owner.username", read_only=True)
    target = serializers.CharField(source="subscription.target", read_only=True)

    class Meta:
        model = Notification
        fields: ClassVar = [
            "id",
            "at",
            "event",
            "subject",
            "state",
            "attempts",
            "next_at",
            "sent_at",
            "message",
            "owner",
            "target",
        ]
        read_only_fields = fields


@extend_schema_view(
    get=extend_schema(
        operation_id="notifications_list", summary="Notifications", tags=["notifications"]
    )
)
class NotificationList(FileList[Notification]):
    """Notifications of the caller's subscriptions, newest first; of all for administrators."""

    queryset = Notification.objects.none()
    serializer_class = NotificationSerializer
    filterset_class = NotificationFilters
    ordering = ("at", "id")
    columns = COLUMNS
    file_name = "notifications"

    def get_queryset(self) -> QuerySet[Notification]:
        """Return them with their subscription and its owner."""
        rows = Notification.objects.select_related("subscription__owner")
        if is_admin(self.request.user):
            return rows
        return rows.filter(subscription__owner__username=self.request.user.get_username())
