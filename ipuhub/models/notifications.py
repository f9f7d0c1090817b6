"""glue: subscriptions, and the notifications that they cause."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q


class Subscription(models.Model):
    """The kinds of messages that a user subscribed to, and their address; see `dashboard.notify`.

    `job_user`, `group` and `namespace` restrict the jobs (empty: any), in addition to the owner's
    rights. `target` is a URL or a mail address. `secret` signs webhooks. Facts from before `since`
    are not sent.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscriptions"
    )
    event = models.TextField()
    channel = models.TextField()
    target = models.TextField()
    job_user = models.TextField(default="")
    group = models.TextField(default="")
    namespace = models.TextField(default="")
    minutes = models.IntegerField(default=0)
    secret = models.TextField(default="")
    is_paused = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.owner}: {self.event} to {self.target}"


class Notification(models.Model):
    """A message to a subscription: the outbox, and the log of sent messages.

    `key` names the fact, so that it is queued once. `state`: queued, sent, or dead (given up).
    A process that sends claims the row; `attempts` counts its tries.
    """

    subscription = models.ForeignKey(
        Subscription, on_delete=models.CASCADE, related_name="notifications"
    )
    key = models.TextField()
    event = models.TextField()
    subject = models.TextField()
    body = models.JSONField()
    at = models.DateTimeField()
    state = models.TextField(default="queued")
    attempts = models.IntegerField(default=0)
    next_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    message = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["subscription", "key"], name="notification_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["next_at"], name="notification_due", condition=Q(state="queued")),
            models.Index(F("at").desc(), F("id").desc(), name="notification_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} to {self.subscription.target}"


class NotificationCount(models.Model):
    """A count of notifications by outcome; see `dashboard.notify.metrics`."""

    name = models.TextField(primary_key=True)
    total = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.name}: {self.total}"
