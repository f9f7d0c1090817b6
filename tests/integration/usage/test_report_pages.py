from __future__ import annotations

import json

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from ipuhub import taskqueue
from ipuhub.models import TaskMessage
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import store_pod
from tests.integration.usage.reading import UTC_ZONE, make, text_of
from usage.models import ReportRun
from usage.reports.making import make_month
from usage.time.windows import Month

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin():
    return get_user_model().objects.create_user("root", password="x", is_staff=True)


@pytest.fixture
def alice():
    return get_user_model().objects.create_user("alice", password="x")


@pytest.fixture
def _october() -> None:
    store_pod("2026-10-01T00:00", "2026-10-02T00:00", ipus=4)
    make("2026-10", "2026-11-03T00:00")


_FILES = {
    "/api/v1/usage/reports/2026-10/summary.csv": ("summary", "default"),
    "/api/v1/usage/reports/2026-10/details.csv": ("details", "default"),
    "/api/v1/usage/reports/2026-10/summary.csv?profile=primehub": ("summary", "primehub"),
    "/api/v1/usage/reports/2026-10/details.csv?profile=primehub": ("details", "primehub"),
    "/report/monthly/2026/10": ("summary", "primehub"),
    "/report/monthly/details/2026/10": ("details", "primehub"),
}
_REFUSED_TO_STRANGERS = (
    *_FILES,
    "/report/monthly",
    "/api/v1/usage/reports",
    "/api/v1/usage/reports/runs",
    "/api/v1/usage/reports/runs/1",
)


@pytest.mark.usefixtures("_october")
@pytest.mark.parametrize("address", _FILES)
def test_files_are_streamed_as_downloads(admin, address: str):
    for accept in ("*/*", "text/csv", "text/html"):
        answer = api_client(admin).get(address, headers={"Accept": accept})
        assert answer.status_code == 200
        assert answer.streaming
        assert answer["Content-Type"].startswith("text/csv")
        assert answer["Content-Disposition"].startswith('attachment; filename="')
        assert b"".join(answer).decode() == text_of("2026-10", *_FILES[address])


@pytest.mark.usefixtures("_october")
@pytest.mark.parametrize("address", _REFUSED_TO_STRANGERS)
def test_strangers_get_a_sentence_and_no_report(alice, address: str):
    for client, want in (
        (Client(), 401),
        (Client(headers={"Authorization": "Bearer ipuhub_wrong"}), 401),
        (api_client(alice), 403),
        (browser(alice), 403),
    ):
        answer = client.get(address)
        assert answer.status_code == want
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"].endswith(".")


@pytest.mark.usefixtures("_october")
def test_months_are_listed_newest_first_as_primehub_did(admin):
    make("2026-09", "2026-11-03T00:00")
    assert api_client(admin).get("/report/monthly").json() == ["2026/10", "2026/9"]


@pytest.mark.usefixtures("_october")
def test_the_api_lists_reports_with_their_files(admin):
    client = api_client(admin)
    (report,) = client.get("/api/v1/usage/reports").json()["results"]
    assert (report["month"], report["state"], report["rows"]) == ("2026-10", "provisional", 1)
    assert set(report["sha256"]) == {"summary", "summary-primehub"}
    file = client.get(report["files"]["details"])
    assert b"".join(file).decode() == text_of("2026-10", "details")


@pytest.mark.parametrize(
    ("address", "want", "sentence"),
    [
        ("/api/v1/usage/reports/2026-13/summary.csv", 400, "Use YYYY-MM"),
        ("/api/v1/usage/reports/October/details.csv", 400, "Use YYYY-MM"),
        ("/api/v1/usage/reports/2026-10/summary.csv?profile=x", 400, "default or primehub"),
        ("/api/v1/usage/reports/2026-09/summary.csv", 404, "There is no report of 2026-09 yet."),
        ("/api/v1/usage/reports/2999-01/summary.csv", 404, "2999-01 has not begun yet"),
        ("/report/monthly/2026/13", 404, "is not a month"),
        ("/report/monthly/details/2026/9", 404, "There is no report of 2026-09 yet."),
        ("/report/monthly/2999/1", 404, "2999-01 has not begun yet"),
        ("/api/v1/usage/reports/runs/99", 404, "Run not found."),
    ],
)
@pytest.mark.usefixtures("_october")
def test_what_there_is_not_is_refused_with_a_sentence(admin, address, want, sentence):
    store_pod("2026-09-01T00:00", "2026-09-02T00:00")  # whose report nobody made
    answer = api_client(admin).get(address)
    assert answer.status_code == want
    assert sentence in answer.json()["detail"]


def test_a_run_is_asked_for_and_followed(admin):
    client = api_client(admin)
    answer = client.post("/api/v1/usage/reports/runs", {}, content_type="application/json")
    assert answer.status_code == 202
    run = client.get(answer["Location"]).json()
    assert (run["state"], run["requested_by"]) == ("queued", "root")
    message = TaskMessage.objects.get()
    assert json.loads(message.body)["headers"]["task"] == "usage.make_reports"


@pytest.mark.parametrize("month", ["2999-01", "x"])
def test_a_run_for_no_month_is_refused(admin, month: str):
    body = {"month": month}
    answer = api_client(admin).post(
        "/api/v1/usage/reports/runs", body, content_type="application/json"
    )
    assert answer.status_code == 400
    assert "month" in answer.json()["errors"]
    assert not ReportRun.objects.exists()


def test_without_a_broker_the_run_fails_and_says_so(admin, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OperationalError("the table cannot be written")

    monkeypatch.setattr(taskqueue, "_run", fail)
    answer = api_client(admin).post(
        "/api/v1/usage/reports/runs", {}, content_type="application/json"
    )
    assert answer.status_code == 503
    assert "task queue is unavailable" in answer.json()["detail"]
    assert ReportRun.objects.get().state == "failed"
    page = browser(admin).post("/usage/reports/make/", follow=True)
    assert "task queue is unavailable" in page.content.decode()


def test_a_stranger_may_not_ask_for_a_run(alice):
    for client, path in (
        (api_client(alice), "/api/v1/usage/reports/runs"),
        (browser(alice), "/usage/reports/make/"),
    ):
        assert client.post(path).status_code == 403
    assert not ReportRun.objects.exists()


@pytest.mark.usefixtures("_october")
def test_the_page_shows_reports_downloads_and_the_run(admin):
    make_month(Month.of(timezone.now(), UTC_ZONE), timezone.now(), UTC_ZONE)
    client = browser(admin)
    page = client.post("/usage/reports/make/", follow=True).content.decode()
    for text in ("2026-10", "provisional", "waits for a worker", "not recorded"):
        assert text in page
    for address in _FILES:
        if address.startswith("/api/"):
            assert address in page
    assert "do not add both" in page
    assert "The end is estimated." in page


def test_the_page_says_what_to_do_when_there_is_nothing(admin):
    page = browser(admin).get("/usage/reports/").content.decode()
    assert "No reports yet" in page


@pytest.mark.usefixtures("_october")
def test_an_unchanged_list_is_not_sent_again(admin):
    client = browser(admin)
    part = client.get("/usage/reports/", headers={"HX-Request": "true"})
    assert b"<html" not in part.content
    again = {"HX-Request": "true", "If-None-Match": part["ETag"]}
    assert client.get("/usage/reports/", headers=again).status_code == 304
    make("2026-10", "2026-11-04T00:00")
    assert client.get("/usage/reports/", headers=again).status_code == 200


def test_only_administrators_see_the_page(alice):
    answer = browser(alice).get("/usage/reports/")
    assert answer.status_code == 403
    assert "are visible to administrators and accountants" in answer.content.decode()
    assert Client().get("/usage/reports/").status_code == 302


@pytest.mark.usefixtures("_october")
def test_the_page_costs_few_queries(admin, django_assert_max_num_queries):
    client = browser(admin)
    with django_assert_max_num_queries(7):
        client.get("/usage/reports/")


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("0 0 * * *", ("generated daily at midnight", "generated at the next midnight")),
        ("30 6 * * *", ("generated on the schedule <code>30 6 * * *</code>",) * 2),
    ],
)
def test_the_page_says_when_reports_are_generated(admin, settings, schedule: str, says):
    settings.REPORT_SCHEDULE = schedule
    page = browser(admin).get("/usage/reports/").content.decode()
    assert all(each in page for each in says)
    assert page.count("midnight") == (2 if schedule.startswith("0 0 ") else 0)
