"""glue: subscriptions: the valid choices, and changes; for the page and the API."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils import timezone

from dashboard.notify.events import (
    COMPONENT_DOWN,
    CONTROLLER_DOWN,
    EVENTS,
    JOB_WAITING,
    MONTH_CLOSED,
    TEST,
    Fact,
    queue,
)
from dashboard.notify.outbox import DEAD, MAIL, QUEUED, WEBHOOK
from dashboard.notify.webhook import Unsent, check_literal, parse_url
from ipuhub.models import Notification, Subscription
from ipuhub.web.access import access_of
from ipuhub.web.audit import SUBSCRIPTION, AuditEvent, audited, differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.contrib.auth.models import User

    from ipuhub.web.audit import Author

MOST: Final = 50
"""So many subscriptions a user may have."""
USAGE_OFF: Final = (
    "Usage is off (USAGE_ENABLED), so IPUHub records neither jobs nor months. Only administrators "
    "can subscribe, to components that are down."
)
TEXT: Final = 253
MINUTES: Final = 43200  # 30 days
_NAMES: Final = ("event", "channel", "target", "job_user", "group", "namespace")


class SubscriptionForm(forms.Form):
    """A new subscription; its choices are the events that the user may see."""

    event = forms.ChoiceField(label="Event")
    channel = forms.ChoiceField(label="Send by")
    target = forms.CharField(label="To", max_length=2000, strip=True)
    job_user = forms.CharField(label="User", max_length=TEXT, required=False)
    group = forms.CharField(label="Group", max_length=TEXT, required=False)
    namespace = forms.CharField(label="Namespace", max_length=63, required=False)
    minutes = forms.IntegerField(label="Minutes", min_value=1, max_value=MINUTES, required=False)

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data, initial={"job_user": user.get_username(), "minutes": 60})
        self.user, access = user, access_of(user)
        hidden = set() if access.is_admin else {CONTROLLER_DOWN, COMPONENT_DOWN}
        if not access.is_accountant:
            hidden.add(MONTH_CLOSED)
        if not settings.USAGE_ENABLED:  # then the other events are not recorded
            hidden |= EVENTS.keys() - {COMPONENT_DOWN}
            self.fields["event"].error_messages |= dict.fromkeys(
                ("required", "invalid_choice"), USAGE_OFF
            )
        offered = [(key, label) for key, label in EVENTS.items() if key not in hidden]
        cast("forms.ChoiceField", self.fields["event"]).choices = offered
        channels = [(WEBHOOK, "webhook"), *([(MAIL, "mail")] if settings.MAIL_HOST else [])]
        cast("forms.ChoiceField", self.fields["channel"]).choices = channels

    def clean_namespace(self) -> str:
        """Refuse a namespace that the user would never be notified about."""
        namespace: str = self.cleaned_data["namespace"]
        if namespace and not access_of(self.user).jobs.covers(namespace):
            raise ValidationError("You do not have access to this namespace.")
        return namespace

    def clean(self) -> dict[str, Any]:
        """Check the target by its channel."""
        given, target = self.cleaned_data, self.cleaned_data.get("target", "")
        if given.get("event") == JOB_WAITING and given.get("minutes") is None:
            self.add_error("minutes", "Say after how many minutes.")
        check = {WEBHOOK: _check_url, MAIL: _check_mail}.get(given.get("channel", ""))
        if target and check:
            try:
                check(target)
            except (Unsent, ValidationError) as error:
                message = error.messages[0] if isinstance(error, ValidationError) else str(error)
                self.add_error("target", message)
        return given


def _check_url(url: str) -> None:
    check_literal(parse_url(url), settings.NOTIFY_NETWORKS)


def _check_mail(address: str) -> None:
    validate_email(address)
    allowed = [domain.lower() for domain in settings.MAIL_DOMAINS]
    if allowed and address.rpartition("@")[2].lower() not in allowed:
        raise ValidationError(f"Mail goes to {', '.join(allowed)} only (IPUHUB_MAIL_DOMAINS).")


def subscribe(author: Author, given: dict[str, Any]) -> Subscription:
    """Create what a valid SubscriptionForm asks for. Raise ValidationError beyond MOST."""
    fields = differences({}, _recorded(given))
    event = AuditEvent(SUBSCRIPTION, "create", given["event"], given["namespace"], fields=fields)
    with audited(author, event):
        return _subscribe(cast("User", author.user), given)


def _recorded(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of a subscription for the audit. The path of a webhook is often a secret,
    so only its host is recorded."""
    fields = {name: given[name] for name in (*_NAMES, "minutes")}
    if given["channel"] == WEBHOOK:
        parts = urlsplit(given["target"])
        fields["target"] = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return fields


def _subscribe(user: User, given: dict[str, Any]) -> Subscription:
    get_user_model().objects.select_for_update().get(pk=user.pk)  # counts one request at a time
    if Subscription.objects.filter(owner=user).count() >= MOST:
        raise ValidationError(f"You have {MOST} subscriptions. Delete one first.")
    now = timezone.now()
    return Subscription.objects.create(
        owner=user,
        minutes=given["minutes"] or 0,
        secret=secrets.token_urlsafe(32) if given["channel"] == WEBHOOK else "",
        created_at=now,
        since=now,
        **{name: given[name] for name in _NAMES},
    )


def pause(author: Author, subscription: Subscription) -> None:
    """Send nothing until it is resumed."""
    rows = Subscription.objects.filter(pk=subscription.pk, is_paused=False)
    event = _audit_event("pause", subscription, [("is_paused", False, True)])
    with audited(author, event):
        event.is_change = bool(rows.update(is_paused=True))


def resume(author: Author, subscription: Subscription) -> None:
    """Send what happens from now on."""
    rows = Subscription.objects.filter(pk=subscription.pk, is_paused=True)
    event = _audit_event("resume", subscription, [("is_paused", True, False)])
    with audited(author, event):
        event.is_change = bool(rows.update(is_paused=False, since=timezone.now()))


def delete(author: Author, subscription: Subscription) -> None:
    """Delete a subscription and its log."""
    event = _audit_event("delete", subscription, differences(_recorded(vars(subscription)), {}))
    with audited(author, event):
        found = Subscription.objects.select_for_update().filter(pk=subscription.pk).first()
        event.is_change = found is not None
        if found is not None:
            found.delete()


def _audit_event(
    action: str, subscription: Subscription, fields: list[tuple[str, object, object]]
) -> AuditEvent:
    return AuditEvent(
        SUBSCRIPTION, action, subscription.event, subscription.namespace, fields=fields
    )


def send_test(subscription: Subscription) -> None:
    """Queue a test message. Raise ValidationError while nothing is sent."""
    _require_active(subscription)
    now = timezone.now()
    subject = "This is a test of your subscription"
    queue(subscription, [Fact(f"{TEST}:{uuid.uuid4()}", now, subject)], now)


def retry_failed(subscription: Subscription) -> int:
    """Queue the messages again that were given up; return how many. Raise ValidationError while
    nothing is sent."""
    _require_active(subscription)
    rows = Notification.objects.filter(subscription=subscription, state=DEAD)
    return rows.update(state=QUEUED, attempts=0, next_at=timezone.now(), claimed_until=None)


def _require_active(subscription: Subscription) -> None:
    if subscription.is_paused:
        raise ValidationError("The subscription is paused, so nothing is sent. Resume it first.")
