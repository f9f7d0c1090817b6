"""glue: the Celery app, which makes reports on demand and daily.

Tasks wait in PostgreSQL. Run `celery -A ipuhub.celery worker --beat` once; further workers without
`--beat`.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Final

from celery import Celery
from celery.schedules import crontab
from celery.signals import setup_logging, worker_process_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipuhub.settings")
# Django's checks import every page: half of a worker's start. The web process makes them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

from django.conf import settings

from ipuhub import heartbeats, taskqueue, workerhealth
from ipuhub.database import bounded_tasks
from ipuhub.process import logs

SUM_DAYS_SECONDS = 300.0
"""Interval at which changed days are summed; until then pages add them up from their pods."""
NOTIFY_SECONDS = 30.0
"""Interval at which facts are read and notifications are sent."""


NIGHTLY: Final = {
    "month reports": {
        "task": "usage.make_daily_reports",
        "schedule": crontab.from_string(settings.REPORT_SCHEDULE),
    },
    "retention": {
        "task": "usage.purge",
        "schedule": crontab(minute="30", hour="1"),  # after reports of midnight close a month
    },
    "idempotency keys": {
        "task": "ipuhub.forget_keys",
        "schedule": crontab(minute="15"),  # hourly: answers may have secrets
    },
    "day sums": {
        "task": "usage.sum_days",
        "schedule": SUM_DAYS_SECONDS,
        "options": {"expires": SUM_DAYS_SECONDS},  # they do not pile up behind a long run
    },
    "notifications": {
        "task": "dashboard.notify",
        "schedule": NOTIFY_SECONDS,
        "options": {"expires": NOTIFY_SECONDS},
    },
    "heartbeat": {
        "task": "ipuhub.heartbeat",
        "schedule": heartbeats.HEARTBEAT_SECONDS,
        "options": {"expires": heartbeats.HEARTBEAT_SECONDS},
    },
}
"""The tasks that beat starts, unless usage is off."""

taskqueue.register()
app = Celery("ipuhub")
app.conf.update(
    broker_url=taskqueue.URL,
    broker_connection_retry_on_startup=True,
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    task_publish_retry=False,  # a request for a report fails at once without the broker
    timezone=settings.REPORT_ZONE.key,
    worker_concurrency=1,  # a run has the lock to itself; others would only say so
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    imports=["usage.tasks", "dashboard.notify.outbox"],
    beat_schedule_filename=settings.BEAT_SCHEDULE_PATH,
    beat_schedule=NIGHTLY if settings.USAGE_ENABLED else {},
)
workerhealth.install(app)
# Messages are JSON, so that root in a container, or an account that the image does not know, is no
# worse here than elsewhere. A warning would also be the only line of the log that is not JSON.
for _message in ("superuser privileges", "specified gid or egid was not found"):
    warnings.filterwarnings("ignore", message=f"(?s).*{_message}", category=Warning)


@app.task(name="ipuhub.forget_keys")  # type: ignore[untyped-decorator]
def forget_keys() -> None:
    """Delete the Idempotency-Keys that are no longer known, with their answers."""
    from django.utils import timezone

    from ipuhub.models.idempotency import forget_expired  # the app is made before the models

    forget_expired(timezone.now())


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _limit_queries(**_: Any) -> None:
    """Let no task wait without end for a silent PostgreSQL: there is one process for all tasks."""
    database = settings.DATABASES["default"]
    database.update(bounded_tasks(database, settings.TASK_QUERY_SECONDS))


@setup_logging.connect  # type: ignore[untyped-decorator]
def _configure_logs(**_: Any) -> None:
    logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
