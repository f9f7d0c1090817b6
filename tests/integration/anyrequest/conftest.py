"""A history shared by all requests, and clients of every role."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connection
from django.utils import timezone

from ipuhub.models import RecordFault, WatchGap
from tests.builders import jobhistory
from tests.builders.fleetrows import capacity_row
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.fakes.emptytables import empty_tables
from usage.models import ReportRun
from usage.reports.making import make_month
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from pytest_django import DjangoDbBlocker


@pytest.fixture(scope="module", autouse=True)
def people(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[dict[str, User]]:
    """Users by name, beside a committed history: downloads read it by connections of their own."""
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(django_settings, "PROXY_URL", "http://127.0.0.1:9")
        patched.setattr(django_settings, "API_REQUESTS_PER_MINUTE", 0)  # so many are tried
        _write_history(timezone.now())
        yield _people()
        empty_tables(connection)


@pytest.fixture(autouse=True)
def _one_transaction() -> Iterator[None]:
    """Keep the connection of a test's transaction, which the end of a request would close."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def _people() -> dict[str, User]:
    make = get_user_model().objects.create_user
    made = {
        "admin": make("root", is_staff=True),
        "accountant": make("ada"),
        "user": make("alice", password="x"),
        "stranger": make("charlie"),
    }
    grant(made["accountant"], "accountant")
    grant(made["user"], "operator", "team-a")
    return made


def _write_history(now: dt.datetime) -> None:
    month = Month(now.year, now.month)
    for namespace in ("team-a", "team-b"):
        done = {"status": "Completed", "created_at": now - dt.timedelta(days=40)}
        for name, fields in (("train", {}), ("done", done)):
            job = jobhistory.job(name, namespace, **fields)
            jobhistory.pod(job, "launcher", finished_at=now if fields else None)
            jobhistory.pod(job, labels={"tier": "x"})
            jobhistory.partition(job)
            jobhistory.attempt(job)
            jobhistory.transition(job, "Running", 5)
    capacity_row("vipu-1", at=now - dt.timedelta(days=41))
    store_rate("ipu", "0.25")
    WatchGap.objects.create(watch="pods", began_at=now, ended_at=now, cause="a test")
    RecordFault.objects.create(
        watch="pods", uid="u", code="bad", message="It is bad.", first_at=now, last_at=now
    )
    for each in (month.previous(), month):
        make_month(each, now, django_settings.REPORT_ZONE)
    ReportRun.objects.create(cause="demand", requested_by="ada", requested_at=now)
    ReportRun.objects.update(id=1)  # as addresses name it, whatever ran in this database before
