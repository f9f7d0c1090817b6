from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from celery.schedules import crontab
from django.db import connection
from django.utils import timezone

from tests.builders.lifetimes import pod
from tests.fakes.waiting import wait_until
from tests.integration.usage.reading import UTC_ZONE
from usage.models import MonthReport, ReportRun
from usage.reports.runs import request_run

pytestmark = pytest.mark.django_db(transaction=True)
_ROOT = Path(__file__).parents[3]


def _environment() -> dict[str, str]:
    known = connection.settings_dict
    place = f"{known['HOST']}:{known['PORT']}/{known['NAME']}"
    password = quote(known["PASSWORD"], safe="")
    return os.environ | {
        "DATABASE_URL": f"postgresql://{known['USER']}:{password}@{place}",
        "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
    }


def test_a_worker_makes_the_reports_that_were_asked_for(tmp_path: Path):
    pod("2026-01-05T00:00", "2026-01-05T01:00")
    run = request_run("demand", "ada", timezone.now(), UTC_ZONE, "2026-01")
    environment = _environment()
    ask = "import django; django.setup()\nfrom ipuhub.celery import app\n"
    ask += f"app.send_task('usage.make_reports', [{run.pk}])"
    asked = subprocess.run(
        [sys.executable, "-c", ask],
        check=False,
        env=environment,
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    command = [sys.executable, "-m", "celery", "-A", "ipuhub.celery", "--quiet", "worker", "-B"]
    command += ["--schedule", str(tmp_path / "schedule")]
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        worker = subprocess.Popen(
            command, env=environment, cwd=_ROOT, stderr=stderr, stdout=subprocess.DEVNULL
        )
    try:
        wait_until(lambda: ReportRun.objects.get(pk=run.pk).is_over or worker.poll() is not None)
    finally:
        worker.terminate()
        worker.wait(90)
    run.refresh_from_db()
    assert (run.state, run.done) == ("done", 1), errors.read_text()
    assert MonthReport.objects.get().lifetimes == 1
    lines = errors.read_text().splitlines()
    assert [line for line in lines if "[info" not in line] == []


def test_beat_makes_the_reports_at_midnight():
    from ipuhub.celery import app

    entry = app.conf.beat_schedule["month reports"]
    assert entry["task"] == "usage.make_daily_reports"
    assert entry["schedule"] == crontab(minute="0", hour="0")
    assert app.conf.timezone == "UTC"
