"""An open page during an outage of PostgreSQL or the dashboard keeps its content and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import OperationalError
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from ipuhub.web import lists
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.integration.web.livepages import axe_violations, live_server, page_of
from tests.integration.web.test_jobs_browser import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

# Chromium reports the answer, or its absence; htmx, too.
EXPECTED = ("status of 503", "Error Code 503", "ERR_INTERNET_DISCONNECTED", "htmx:")


@pytest.fixture
def opened(transactional_db: None, django_user_model: Any) -> Iterator[Page]:
    """The list of jobs of an administrator."""
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    jobhistory.job("bert")
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    with live_server() as address, page_of(address, cookie, 1280, wanted=EXPECTED) as page:
        page.goto("/jobs/")
        expect(page.locator("#stale")).to_be_hidden()
        yield page


def assert_says(page: Page, culprit: str) -> None:
    """The page and its header say so, and still show the last values."""
    expect(page.locator("#stale")).to_contain_text(f"{culprit}. The data on this page is")
    expect(page.locator("#stale time")).not_to_have_text("")
    expect(page.locator("#health.is-down")).to_have_text(culprit)
    expect(page.get_by_role("link", name="bert", exact=True)).to_be_visible()


def assert_recovers(page: Page) -> None:
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#health")).to_contain_text("Kubernetes API")  # this test has no cluster


def test_postgres_that_goes_away_is_named_beside_what_was_known(
    opened: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> NoReturn:
        raise OperationalError from psycopg.OperationalError("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(lists, "read_page", away)
        assert_says(opened, "PostgreSQL is unavailable")
        assert axe_violations(opened) == []
    assert_recovers(opened)


def test_a_full_dashboard_is_said_in_one_sentence_for_each(opened: Page) -> None:
    full = "The server has reached its connection limit. Try again in a few seconds."
    answer = {"status": 503, "content_type": "text/plain", "body": f"{full}\n"}
    opened.route("**/jobs/**", lambda route: route.fulfill(**answer))
    expect(opened.locator("#stale strong")).to_have_text(full)
    opened.unroute("**/jobs/**")
    assert_recovers(opened)


def test_a_dashboard_that_goes_away_is_named_beside_what_was_known(opened: Page) -> None:
    opened.context.set_offline(True)
    assert_says(opened, "The dashboard does not answer")
    opened.context.set_offline(False)
    assert_recovers(opened)


def test_a_page_that_is_not_renewed_gets_no_age(opened: Page) -> None:
    opened.goto("/help/")
    expect(opened.locator("#health.is-down")).to_contain_text("Kubernetes API")
    opened.context.set_offline(True)
    opened.evaluate("window.htmx.trigger('#health', 'again')")
    expect(opened.locator("#stale strong")).to_have_text("The dashboard does not answer.")
    expect(opened.locator("#stale span")).to_be_hidden()
    opened.context.set_offline(False)
    opened.evaluate("window.htmx.trigger('#health', 'again')")
    assert_recovers(opened)


def test_the_age_of_an_unchanged_page_is_that_of_the_last_answer(opened: Page) -> None:
    time = opened.locator("#as-of time")
    old = "2020-01-01T00:00:00+00:00"
    time.evaluate("(time, old) => { time.dateTime = old; }", old)
    in_thread(lambda: WatchCheckpoint.objects.update(position_at=timezone.now()))
    opened.evaluate("window.htmx.trigger('[data-live]', 'refresh')")
    expect(time).not_to_have_attribute("datetime", old)
    expect(opened.locator("#stale")).to_be_hidden()
