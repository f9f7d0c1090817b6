"""glue: sends queued notifications until they arrive or are given up, each by one worker at a time.

A worker claims a row before it sends, and the claim sets when the row is due again, so a row that
crashes its worker does not block the others. If the worker dies, the claim expires and another
worker sends the row again. Receivers recognize repetitions by the id.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import TYPE_CHECKING, Final

import structlog
from celery import shared_task
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from dashboard.notify.events import OF_COMPONENTS, collect
from dashboard.notify.mail import send
from dashboard.notify.metrics import Count, count
from dashboard.notify.outages import record_outages
from dashboard.notify.webhook import Unsent, post, sign
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
    """Queue events of components and send due notifications; each row stores its outcome.

    The web process queues all other notifications (`dashboard.notify.rounds`).
    """
    record_outages(timezone.now())
    queued = collect(timezone.now(), OF_COMPONENTS)
    sent = deliver(timezone.now)
    if queued or sent:
        _LOG.info("notifications", queued=queued, sent=sent)


def deliver(now: Callable[[], dt.datetime], clock: Callable[[], float] = time.monotonic) -> int:
    """Send what is due, for at most ROUND_SECONDS; return how many arrived."""
    _give_up(now())
    sent, end = 0, clock() + ROUND_SECONDS
    while clock() < end and (row := claim(now())) is not None:
        sent += _send(row, now())
    return sent


def _give_up(now: dt.datetime) -> None:
    """End the rows whose worker died at the last attempt: they may be what it died of."""
    rows = Notification.objects.filter(
        state=QUEUED, claimed_until__lt=now, attempts__gte=settings.NOTIFY_ATTEMPTS
    )
    message = "The worker stopped during the last attempt."
    if dead := rows.update(state=DEAD, claimed_until=None, message=message):
        count(Count.DEAD, dead)
        _LOG.error("notifications given up", count=dead, why=message)


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
        pause = exponential(row.attempts, base=_FIRST_SECONDS, maximum=_LAST_SECONDS)
        row.attempts += 1
        row.next_at = now + dt.timedelta(seconds=pause)
        row.claimed_until = now + dt.timedelta(seconds=CLAIM_SECONDS)
        row.save(update_fields=["attempts", "next_at", "claimed_until"])
    return row


def _send(row: Notification, now: dt.datetime) -> bool:
    """Send it and record the answer; return whether it arrived."""
    try:
        message = _CHANNELS[row.subscription.channel](row, now)
    except Unsent as refused:
        return _fail(row, str(refused), is_final=refused.is_final)
    except Exception as error:  # noqa: BLE001  # one odd row must not hold back the others
        _LOG.exception("notification failed", id=row.pk)
        count(Count.SEND_ERROR)
        # Only the kind: the text can hold what users may not read, such as the mail password.
        kind = type(error).__name__
        return _fail(row, f"IPUHub failed to send this ({kind}). The worker's log says why.")
    _record(row, state=SENT, message=message, sent_at=now)
    count(Count.SENT)
    return True


def _fail(row: Notification, message: str, *, is_final: bool = False) -> bool:
    is_last = is_final or row.attempts >= settings.NOTIFY_ATTEMPTS
    _record(row, state=DEAD if is_last else QUEUED, message=message)
    count(Count.DEAD if is_last else Count.RETRIED)
    _LOG.warning("notification not sent", id=row.pk, why=message, dead=is_last)
    return False


def _record(row: Notification, *, message: str, **values: object) -> None:
    """Write the outcome of the attempt that this worker made; the outcome of a later attempt
    stays."""
    # Receivers choose the text, and PostgreSQL takes no NUL.
    printable = "".join(char if char.isprintable() else "?" for char in message)[:500]
    rows = Notification.objects.filter(pk=row.pk, attempts=row.attempts)
    rows.update(claimed_until=None, message=printable, **values)


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
    lines = [f"{row.subject}.", row.body.get("url", ""), _WHY]
    mail = EmailMessage(
        f"[IPUHub] {' '.join(row.subject.split())}",
        "\n\n".join(filter(None, lines)),
        settings.MAIL_FROM,
        [row.subscription.target],
        headers={"X-IPUHub-Id": str(row.pk), "Message-ID": _message_id(row)},
    )
    send(mail, row.subscription.target)
    return f"accepted by {settings.MAIL_HOST}"


def _message_id(row: Notification) -> str:
    """Return the same for each attempt: mail servers and readers show a repetition once."""
    domain = settings.MAIL_FROM.rpartition("@")[2].rstrip("> ")
    return f"<ipuhub.{row.pk}.{int(row.at.timestamp())}@{domain}>"


_WHY: Final = "You receive this because of a subscription in IPUHub: Account, Notifications."
_CHANNELS: Final[dict[str, Callable[[Notification, dt.datetime], str]]] = {
    WEBHOOK: _send_webhook,
    MAIL: _send_mail,
}
