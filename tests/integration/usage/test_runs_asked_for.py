"""A requested run of the reports is not made twice while it is under way."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone
from django.utils.html import strip_tags

from ipuhub.heartbeats import WORKER
from ipuhub.models import Heartbeat, TaskMessage
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_pod
from tests.integration.usage.reading import UTC_ZONE, make
from usage.models import ReportRun
from usage.reports.runs import ask_for_run, do_run

pytestmark = [
    pytest.mark.django_db(transaction=True),
]
NOW = at("2026-11-21T12:00")
RUNS = "/api/v1/usage/reports/runs"


def test_make_now_pressed_twice_shows_the_run_under_way(django_user_model: type) -> None:
    admin = django_user_model.objects.create_user("root", is_staff=True)  # type: ignore[attr-defined]
    client = browser(admin)
    for _ in range(2):
        page = client.post("/usage/reports/make/", follow=True).content.decode()
        assert "waits for a worker" in page
    run = ReportRun.objects.get()
    again = api_client(admin).post(RUNS, {}, content_type="application/json")
    assert (again.status_code, again.json()["id"]) == (202, run.pk)
    assert TaskMessage.objects.count() == 1


def test_a_run_that_waits_for_a_worker_that_is_down_says_so(
    django_user_model: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    admin = django_user_model.objects.create_user("root", is_staff=True)  # type: ignore[attr-defined]
    client = browser(admin)
    client.post("/usage/reports/make/")
    beat = Heartbeat.objects.create(name=WORKER, at=NOW - timedelta(seconds=119))
    alive = client.get("/usage/reports/")
    assert "waits for a worker." in alive.content.decode()
    assert "is down" not in alive.content.decode()
    beat.at = NOW - timedelta(seconds=121)
    beat.save()
    silent = client.get("/usage/reports/", headers={"If-None-Match": alive["ETag"]})
    words = " ".join(strip_tags(silent.content.decode()).split())
    sentence = "waits for a worker. The worker is down: last heartbeat 2 min 1 s ago. Show the"
    assert sentence in words
    ReportRun.objects.update(kind="summary", begin=at("2026-10-01T00:00"), end=NOW)
    page = client.get("/usage/reports/").content.decode()
    assert "; the worker is down" in page


def test_another_month_or_its_closing_is_another_run() -> None:
    store_pod("2026-10-01T00:00", "2026-10-02T00:00")
    runs = [
        ask_for_run("ada", NOW),
        ask_for_run("ada", NOW, "2026-10"),
        ask_for_run("ada", NOW, "2026-10", close=True),
        ask_for_run("ben", NOW, "2026-10"),
    ]
    assert [each.pk for each in runs[:3]] == sorted({each.pk for each in runs})
    assert runs[3] == runs[1]


def test_a_run_that_is_over_is_made_anew() -> None:
    first = ask_for_run("ada", NOW)
    do_run(first, UTC_ZONE, lambda: NOW)
    assert ask_for_run("ada", NOW) != first


def test_a_run_at_work_is_the_one_until_its_process_has_died() -> None:
    make("2026-11", "2026-11-20T00:00")
    first = ask_for_run("ada", NOW)
    meanwhile: list[ReportRun] = []
    do_run(first, UTC_ZONE, lambda: NOW, lambda _: meanwhile.append(ask_for_run("ben", NOW)))
    assert set(meanwhile) == {first}
    ReportRun.objects.update(state=ReportRun.State.RUNNING)
    assert ask_for_run("ben", NOW) != first


def test_a_run_that_no_worker_took_for_long_is_asked_for_anew() -> None:
    first = ask_for_run("ada", NOW)
    assert ask_for_run("ada", NOW + timedelta(minutes=9)) == first
    assert ask_for_run("ada", NOW + timedelta(minutes=11)) != first


def test_who_asks_at_the_same_moment_gets_the_same_run() -> None:
    found: list[ReportRun] = []

    def ask() -> None:
        found.append(ask_for_run("ben", NOW))
        connection.close()

    other = threading.Thread(target=ask)
    with transaction.atomic():
        first = ask_for_run("ada", NOW)
        other.start()
        _until_somebody_waits()
    other.join(30)
    assert found == [first]


def _until_somebody_waits() -> None:
    end = timezone.now() + timedelta(seconds=30)
    with connection.cursor() as cursor:
        while timezone.now() < end:
            cursor.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if cursor.fetchone():
                return
    raise AssertionError("nobody waited")
