"""The day sums are kept by a task of the worker and by a command."""

from __future__ import annotations

from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from ipuhub.celery import app
from ipuhub.recording.store import connection_arguments
from tests.builders.lifetimes import store_pod
from usage.models import UsageDay
from usage.tasks import sum_days

pytestmark = pytest.mark.django_db


def test_the_scheduled_task_sums_what_is_over() -> None:
    store_pod("2026-01-05T12:00", "2026-01-06T12:00")
    assert sum_days.name in {entry["task"] for entry in app.conf.beat_schedule.values()}
    sum_days()
    assert UsageDay.objects.count() == 2


def test_the_command_says_how_many_days_it_summed() -> None:
    store_pod("2026-01-05T12:00", "2026-01-05T13:00")
    output = StringIO()
    call_command("sum_usage_days", stdout=output)
    assert output.getvalue().endswith("summed\n")
    assert UsageDay.objects.count() == 1
    again = StringIO()
    call_command("sum_usage_days", stdout=again)
    assert again.getvalue() == "0 days summed\n"


def test_a_rebuild_sums_everything_anew() -> None:
    store_pod("2026-01-05T12:00", "2026-01-06T12:00")
    call_command("sum_usage_days", stdout=StringIO())
    UsageDay.objects.update(seconds=1)  # as if somebody had meddled
    output = StringIO()
    call_command("sum_usage_days", "--rebuild", stdout=output, stderr=StringIO())
    assert output.getvalue().endswith("days summed\n")
    assert [day.seconds for day in UsageDay.objects.order_by("day")] == [12 * 3600] * 2


@pytest.mark.django_db(transaction=True)
def test_a_rebuild_beside_another_says_so(database_url: str) -> None:
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x75736167])
        with pytest.raises(CommandError, match="Try again"):
            call_command("sum_usage_days", "--rebuild", stdout=StringIO(), stderr=StringIO())
