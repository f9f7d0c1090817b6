"""glue: the Celery task of notifications; what became of each stands in its row."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from dashboard.notify.events import collect
from dashboard.notify.outbox import deliver

_LOG = structlog.get_logger(__name__)


@shared_task(name="dashboard.notify")  # type: ignore[untyped-decorator]
def notify() -> None:
    """Queue what happened, and send what is due."""
    queued = collect(timezone.now())
    sent = deliver(timezone.now)
    if queued or sent:
        _LOG.info("notifications", queued=queued, sent=sent)
