"""The day sums are kept by a task of the worker and by a command."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from ipuhub.celery import app
from tests.builders.lifetimes import pod
from usage.models import UsageDay
from usage.tasks import sum_days

pytestmark = pytest.mark.django_db


def test_the_scheduled_task_sums_what_is_over() -> None:
    pod("2026-01-05T12:00", "2026-01-06T12:00")
    assert sum_days.name in {entry["task"] for entry in app.conf.beat_schedule.values()}
    sum_days()
    assert UsageDay.objects.count() == 2


def test_the_command_says_how_many_days_it_summed() -> None:
    pod("2026-01-05T12:00", "2026-01-05T13:00")
    said = StringIO()
    call_command("sum_usage_days", stdout=said)
    assert said.getvalue().endswith("summed\n")
    assert UsageDay.objects.count() == 1
    again = StringIO()
    call_command("sum_usage_days", stdout=again)
    assert again.getvalue() == "0 days summed\n"
