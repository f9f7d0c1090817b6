"""glue: the page on which users subscribe, test, pause and see what was sent."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db.models import Count, Q
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.notify.events import (
    CONTROLLER_DOWN,
    EVENTS,
    JOB_ENDED,
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
from ipuhub.web.requests import signed_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

MOST: Final = 50
"""So many subscriptions a user may have."""
_SHOWN: Final = 50
_TEXT: Final = 253


class SubscriptionForm(forms.Form):
    """A new subscription; events are those that the user may know of."""

    event = forms.ChoiceField(label="Event")
    channel = forms.ChoiceField(label="Send by")
    target = forms.CharField(label="To", max_length=2000, strip=True)
    job_user = forms.CharField(label="User", max_length=_TEXT, required=False)
    group = forms.CharField(label="Group", max_length=_TEXT, required=False)
    namespace = forms.CharField(label="Namespace", max_length=63, required=False)
    minutes = forms.IntegerField(label="Minutes", min_value=1, max_value=43200, required=False)

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data, initial={"job_user": user.get_username(), "minutes": 60})
        self.user, access = user, access_of(user)
        hidden = set() if access.is_admin else {CONTROLLER_DOWN}
        if not access.is_accountant or not settings.USAGE_ENABLED:
            hidden.add(MONTH_CLOSED)
        if settings.ACCESS == "kubernetes" and not access.is_admin:
            hidden |= {JOB_ENDED, JOB_WAITING}  # the worker cannot ask Kubernetes who may see what
        offered = [(key, label) for key, label in EVENTS.items() if key not in hidden]
        cast("forms.ChoiceField", self.fields["event"]).choices = offered
        channels = [(WEBHOOK, "webhook"), *([(MAIL, "mail")] if settings.MAIL_HOST else [])]
        cast("forms.ChoiceField", self.fields["channel"]).choices = channels

    def clean_namespace(self) -> str:
        """Refuse a namespace of which the user would never be told."""
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
                said = error.messages[0] if isinstance(error, ValidationError) else str(error)
                self.add_error("target", said)
        return given


def _check_url(url: str) -> None:
    check_literal(parse_url(url), settings.NOTIFY_NETWORKS)


def _check_mail(address: str) -> None:
    validate_email(address)
    allowed = [domain.lower() for domain in settings.MAIL_DOMAINS]
    if allowed and address.rpartition("@")[2].lower() not in allowed:
        raise ValidationError(f"Mail goes to {', '.join(allowed)} only (IPUHUB_MAIL_DOMAINS).")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@never_cache
def notifications(request: HttpRequest) -> HttpResponse:
    """Show one's subscriptions and what was sent; a POST subscribes and shows the secret, once."""
    user = cast("User", request.user)
    form = SubscriptionForm(user, request.POST if request.method == "POST" else None)
    secret = ""
    if form.is_valid():
        if Subscription.objects.filter(owner=user).count() >= MOST:
            form.add_error(None, f"You have {MOST} subscriptions. Delete one first.")
        else:
            secret = _subscribe(user, form.cleaned_data).secret
            form = SubscriptionForm(user)
            if not secret:
                messages.success(request, "You are subscribed. Send a test to see that it arrives.")
                return redirect("account-notifications")
    dead = Count("notifications", filter=Q(notifications__state=DEAD))
    mine = Subscription.objects.filter(owner=user).annotate(dead=dead).order_by("created_at", "id")
    sent = Notification.objects.filter(subscription__owner=user).select_related("subscription")
    context = {
        "form": form,
        "secret": secret,
        "subscriptions": mine,
        "sent": sent.order_by("-at", "-id")[:_SHOWN],
        "events": EVENTS,
        "now": timezone.now(),
    }
    status = 400 if form.errors else 200
    return render(request, "account/notifications.html", context, status=status)


def _subscribe(user: User, given: dict[str, Any]) -> Subscription:
    now = timezone.now()
    names = ("event", "channel", "target", "job_user", "group", "namespace")
    return Subscription.objects.create(
        owner=user,
        minutes=given["minutes"] or 0,
        secret=secrets.token_urlsafe(32) if given["channel"] == WEBHOOK else "",
        created_at=now,
        since=now,
        **{name: given[name] for name in names},
    )


@require_POST
@signed_in
def change_subscription(request: HttpRequest, number: int, change: str) -> HttpResponse:
    """Test, pause, resume or delete one of one's own subscriptions. Raises Http404."""
    found = get_object_or_404(Subscription, pk=number, owner=cast("User", request.user))
    if change not in _CHANGES:
        raise Http404(f"Changes are {', '.join(_CHANGES)}.")
    messages.success(request, _CHANGES[change](found))
    return redirect("account-notifications")


def _test(subscription: Subscription) -> str:
    now = timezone.now()
    subject = "This is a test of your subscription"
    queue(subscription, [Fact(f"{TEST}:{uuid.uuid4()}", now, subject)], now)
    return "A test is queued. It is sent within a minute; the log below shows the answer."


def _pause(subscription: Subscription) -> str:
    Subscription.objects.filter(pk=subscription.pk).update(is_paused=True)
    return "The subscription is paused: nothing is sent until you resume it."


def _resume(subscription: Subscription) -> str:
    now = timezone.now()
    rows = Subscription.objects.filter(pk=subscription.pk, is_paused=True)
    rows.update(is_paused=False, since=now)
    return "The subscription is active. What happened in between is not sent."


def _retry(subscription: Subscription) -> str:
    rows = Notification.objects.filter(subscription=subscription, state=DEAD)
    count = rows.update(state=QUEUED, attempts=0, next_at=timezone.now(), claimed_until=None)
    plural = "s" if count != 1 else ""
    return f"{count} failed notification{plural} queued again."


def _delete(subscription: Subscription) -> str:
    subscription.delete()
    return "The subscription and its log are deleted."


_CHANGES: Final[dict[str, Callable[[Subscription], str]]] = {
    "test": _test,
    "pause": _pause,
    "resume": _resume,
    "retry": _retry,
    "delete": _delete,
}
