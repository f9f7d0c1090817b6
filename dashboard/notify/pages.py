"""glue: the page of notifications: subscribe, test, pause, and list sent messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Q
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.notify.events import spell_event
from dashboard.notify.outbox import DEAD
from dashboard.notify.subscriptions import (
    USAGE_OFF,
    SubscriptionForm,
    delete,
    pause,
    resume,
    retry_failed,
    send_test,
    subscribe,
)
from ipuhub.models import Notification, Subscription
from ipuhub.web.access import signed_in
from ipuhub.web.audit import author_of
from ipuhub.web.problems import takes
from ipuhub.web.refusals import note_mistakes

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

    from ipuhub.web.audit import Author

_SHOWN: Final = 50


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@takes()
@never_cache
def notifications(request: HttpRequest) -> HttpResponse:
    """Show the user's subscriptions and sent messages; a POST subscribes and shows the secret,
    once."""
    user = cast("User", request.user)
    form = SubscriptionForm(user, request.POST if request.method == "POST" else None)
    secret = ""
    if form.is_valid():
        try:
            secret = subscribe(author_of(request), form.cleaned_data).secret
        except ValidationError as error:
            form.add_error(None, error)
        else:
            form = SubscriptionForm(user)
            if not secret:
                messages.success(request, "You are subscribed. Send a test to see that it arrives.")
                return redirect("account-notifications")
    note_mistakes(request, form)
    dead = Count("notifications", filter=Q(notifications__state=DEAD))
    mine = Subscription.objects.filter(owner=user).annotate(dead=dead).order_by("created_at", "id")
    sent = Notification.objects.filter(subscription__owner=user).select_related("subscription")
    context = {
        "form": form,
        "secret": secret,
        "subscriptions": [(each, spell_event(each.event, each.minutes)) for each in mine],
        "problem": "" if settings.USAGE_ENABLED else USAGE_OFF,
        "sent": sent.order_by("-at", "-id")[:_SHOWN],
        "now": timezone.now(),
    }
    status = 400 if form.errors else 200
    return render(request, "account/notifications.html", context, status=status)


@require_POST
@signed_in
def change_subscription(request: HttpRequest, number: int, change: str) -> HttpResponse:
    """Test, pause, resume or delete one of the user's subscriptions. Raises Http404."""
    found = get_object_or_404(Subscription, pk=number, owner=cast("User", request.user))
    if change not in _CHANGES:
        raise Http404(f"Changes are {', '.join(_CHANGES)}.")
    try:
        messages.success(request, _CHANGES[change](author_of(request), found))
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    return redirect("account-notifications")


def _test(_author: Author, subscription: Subscription) -> str:
    send_test(subscription)
    return "A test is queued. It is sent within a minute; the log below shows the answer."


def _pause(author: Author, subscription: Subscription) -> str:
    pause(author, subscription)
    return "The subscription is paused: nothing is sent until you resume it."


def _resume(author: Author, subscription: Subscription) -> str:
    resume(author, subscription)
    return "The subscription is active. What happened in between is not sent."


def _retry(_author: Author, subscription: Subscription) -> str:
    count = retry_failed(subscription)
    plural = "s" if count != 1 else ""
    return f"{count} failed notification{plural} queued again."


def _delete(author: Author, subscription: Subscription) -> str:
    delete(author, subscription)
    return "The subscription and its log are deleted."


_CHANGES: Final[dict[str, Callable[[Author, Subscription], str]]] = {
    "test": _test,
    "pause": _pause,
    "resume": _resume,
    "retry": _retry,
    "delete": _delete,
}
