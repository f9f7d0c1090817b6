"""glue: sends queued notifications, each by one worker at a time, until they arrive or are given
up.

A worker claims a row before it sends. If it dies, the claim runs out and another worker sends it
again: a receiver tells repetitions by the id.
"""

from __future__ import annotations

import datetime as dt
import json
import smtplib
import time
from typing import TYPE_CHECKING, Final

import structlog
from celery import shared_task
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from dashboard.notify.events import collect
from dashboard.notify.webhook import WHOLE_SECONDS, Unsent, post, sign
from ipuhub.backoff import exponential
from ipuhub.models import Notification

if TYPE_CHECKING:
    from collections.abc import Callable

WEBHOOK, MAIL = "webhook", "mail"
QUEUED, SENT, DEAD = "queued", "sent", "dead"
CLAIM_SECONDS: Final = 60
ROUND_SECONDS: Final = 45.0
"""A round takes no longer, so that reports have their turn of the worker."""
_FIRST_SECONDS, _LAST_SECONDS = 30.0, 3600.0
_LOG = structlog.get_logger(__name__)


@shared_task(name="dashboard.notify")  # type: ignore[untyped-decorator]
def notify() -> None:
    """Queue what happened, and send what is due; what became of each stands in its row."""
    queued = collect(timezone.now())
    sent = deliver(timezone.now)
    if queued or sent:
        _LOG.info("notifications", queued=queued, sent=sent)


def deliver(now: Callable[[], dt.datetime], clock: Callable[[], float] = time.monotonic) -> int:
    """Send what is due, for at most ROUND_SECONDS; return how many arrived."""
    sent, end = 0, clock() + ROUND_SECONDS
    while clock() < end and (row := claim(now())) is not None:
        sent += _send(row, now())
    return sent


@transaction.atomic
def claim(now: dt.datetime) -> Notification | None:
    """Return a notification that is due, which no other worker gets for CLAIM_SECONDS."""
    free = Q(claimed_until=None) | Q(claimed_until__lt=now)
    due = Notification.objects.filter(free, state=QUEUED, next_at__lte=now)
    row = (
        due.filter(subscription__is_paused=False)
        .select_related("subscription")
        .select_for_update(of=("self",), skip_locked=True)
        .order_by("next_at", "id")
        .first()
    )
    if row is not None:
        row.attempts += 1
        row.claimed_until = now + dt.timedelta(seconds=CLAIM_SECONDS)
        row.save(update_fields=["attempts", "claimed_until"])
    return row


def _send(row: Notification, now: dt.datetime) -> bool:
    """Send it and record the answer; return whether it arrived."""
    try:
        message = _CHANNELS[row.subscription.channel](row, now)
    except Unsent as why:
        is_last = why.is_final or row.attempts >= settings.NOTIFY_ATTEMPTS
        pause = exponential(row.attempts - 1, base=_FIRST_SECONDS, maximum=_LAST_SECONDS)
        state, next_at = DEAD if is_last else QUEUED, now + dt.timedelta(seconds=pause)
        _record(row, state=state, message=str(why)[:500], next_at=next_at)
        _LOG.warning("notification not sent", id=row.pk, why=str(why), dead=is_last)
        return False
    _record(row, state=SENT, message=message, sent_at=now)
    return True


def _record(row: Notification, **values: object) -> None:
    """Write the outcome of the attempt that this worker made; a later one's stays."""
    rows = Notification.objects.filter(pk=row.pk, attempts=row.attempts)
    rows.update(claimed_until=None, **values)


def _send_webhook(row: Notification, now: dt.datetime) -> str:
    body = json.dumps({"id": row.pk, **row.body}).encode()
    timestamp = int(now.timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "IPUHub",
        "X-IPUHub-Event": row.event,
        "X-IPUHub-Id": str(row.pk),
        "X-IPUHub-Timestamp": str(timestamp),
        "X-IPUHub-Signature": sign(row.subscription.secret, timestamp, body),
    }
    status = post(row.subscription.target, body, headers, settings.NOTIFY_NETWORKS)
    return f"answered {status}"


def _send_mail(row: Notification, _now: dt.datetime) -> str:
    if not settings.MAIL_HOST:
        raise Unsent("Mail is not set up (IPUHUB_MAIL_HOST).", is_final=True)
    server = EmailBackend(
        host=settings.MAIL_HOST,
        port=settings.MAIL_PORT,
        username=settings.MAIL_USER,
        password=settings.MAIL_PASSWORD,
        use_tls=settings.MAIL_TLS == "starttls",
        use_ssl=settings.MAIL_TLS == "tls",
        timeout=int(WHOLE_SECONDS),
    )
    lines = [f"{row.subject}.", row.body.get("url", ""), _WHY]
    mail = EmailMessage(
        f"[IPUHub] {row.subject}",
        "\n\n".join(filter(None, lines)),
        settings.MAIL_FROM,
        [row.subscription.target],
        headers={"X-IPUHub-Id": str(row.pk)},
        connection=server,
    )
    try:
        mail.send()
    except (OSError, smtplib.SMTPException) as error:
        raise Unsent(f"The mail server did not take it: {error}.") from error
    return f"accepted by {settings.MAIL_HOST}"


_WHY: Final = "You receive this because of a subscription in IPUHub: Account, Notifications."
_CHANNELS: Final[dict[str, Callable[[Notification, dt.datetime], str]]] = {
    WEBHOOK: _send_webhook,
    MAIL: _send_mail,
}
