"""Subscriptions, facts to notify about, and a round of the task that sends them."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from dashboard.notify.events import collect
from dashboard.notify.outbox import deliver
from ipuhub.models import Subscription
from tests.builders import jobhistory
from tests.builders.clients import api_client

if TYPE_CHECKING:
    from django.contrib.auth.models import User


PAGE = "/account/notifications/"
MINUTE = dt.timedelta(minutes=1)


def subscribe(user: User, event: str = "job-ended", **fields: Any) -> Subscription:
    past = timezone.now() - 60 * MINUTE
    values = {"channel": "webhook", "secret": "s3cret", "created_at": past, "since": past} | fields
    return Subscription.objects.create(owner=user, event=event, **values)


def store_ended_job(name: str = "train", namespace: str = "team-a", **fields: Any) -> None:
    fields = {"status": "Failed", "completed_at": timezone.now(), "user": "ann"} | fields
    jobhistory.job(name, namespace, **fields)


def delivery_counts() -> dict[str, int]:
    """Return the notification counters of the dashboard's /metrics by label, without zeros."""
    page = api_client(get_user_model().objects.create_user("scraper", is_staff=True)).get(
        "/metrics"
    )
    lines = re.findall(
        r'^ipuhub_notification_\w+{\w+="(\w+)"} (\d+)', page.content.decode(), re.MULTILINE
    )
    return {label: int(total) for label, total in lines if total != "0"}


def deliver_all() -> None:
    collect(timezone.now())
    deliver(timezone.now)
