"""A row of each kind that a page shows, so that no page is empty."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from dashboard.notify.events import Fact, queue
from ipuhub.api.auth import make_token
from ipuhub.models import (
    AuditEntry,
    ComponentOutage,
    RecordFault,
    WatchCheckpoint,
    WatchGap,
)
from tests.builders import jobhistory
from tests.builders.notifications import subscribe
from tests.builders.rates import store_rate
from usage.models import ReportRun
from usage.reports.making import make_month
from usage.time.months import usage_zone
from usage.time.windows import Month

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from jobs.models import JobRecord


FEW = 15
"""How many tokens and subscriptions a person may have who has many."""


def jobs_of_each_kind() -> JobRecord:
    """Store a job that failed, one that waits, one that runs; return the failed one."""
    now = timezone.now()
    WatchCheckpoint.objects.create(name="ipujobs", position_at=now)
    failed = jobhistory.job(
        status="Failed",
        reason="OOMKilled",
        completed_at=now,
        created_at=now - dt.timedelta(minutes=5),
    )
    jobhistory.attempt(failed, message="Out of memory", log="a line", ended_at=now, exit_code=137)
    jobhistory.pod(failed, phase="Failed", exit_code=137, finished_at=now)
    jobhistory.pod(failed, "launcher", finished_at=now)
    jobhistory.partition(failed, released_at=now)
    jobhistory.transition(failed, "Failed", 300, "OOMKilled")
    jobhistory.job("waits", status="Pending", reason="NoCapacity", message="No room.")
    runs = jobhistory.job("runs")
    jobhistory.pod(runs)
    jobhistory.partition(runs)
    return failed


def month_with_report() -> str:
    """Make the report of last month, which can be closed; return the month."""
    month = Month.of(timezone.now(), usage_zone()).previous()
    make_month(month, timezone.now(), usage_zone())
    return str(month)


def rows_of_administration(owner: User, count: int = 1, text: str = "said") -> None:
    """Store `count` rows of each list that is not about jobs, and the rows of `owner`: tokens and
    subscriptions, at most a few, and sent notifications. `said`: free text that people wrote in
    them."""
    now = timezone.now()
    store_rate("ipu", "1.25")
    for number in range(count):
        at = now - dt.timedelta(minutes=number)
        names: dict[str, Any] = {"namespace": "team-a", "user_name": text}
        AuditEntry.objects.create(
            at=at,
            answered_at=at,
            kubernetes_user=text,
            action="scale",
            name=f"train-{number}",
            change={"spec": {"workers": text}},
            outcome="refused",
            status=403,
            message=text,
            **names,
        )
        role = [{"field": "role", "before": None, "after": "viewer"}]
        AuditEntry.objects.create(
            at=at,
            answered_at=at,
            kind="role",
            action="grant",
            namespace="team-a",
            name=text,
            user_name=text,
            change={},
            changes=role,
            outcome="accepted",
        )
        WatchGap.objects.create(watch="ipujobs", began_at=at, ended_at=at, cause=text)
        fault = {"uid": f"u{number}", "code": "odd", "message": text, "name": text}
        RecordFault.objects.create(watch="ipujobs", first_at=at, last_at=at, **fault)
        ReportRun.objects.create(requested_at=at, requested_by=text)
        if number < FEW:
            make_token(owner, f"{text} {number}", at)
            subscription = subscribe(
                owner, target=f"https://chat.example/hooks/{number}", job_user=text
            )
        queue(subscription, [Fact(f"k{number}", at, f"Job {text} ended")], at)
        ComponentOutage.objects.create(name="operator", since=at, ended_at=now, detail=text)
