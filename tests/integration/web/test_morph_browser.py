"""Live fragments are updated in place: open details, choices, focus and scrolling stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from jobs.models import JobRecord
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.integration.web.livepages import page_of
from tests.integration.web.test_jobs_browser import change, in_thread

if TYPE_CHECKING:
    from playwright.sync_api import Page

SELECT = """(link) => {
  const range = document.createRange();
  range.selectNodeContents(link);
  document.getSelection().removeAllRanges();
  document.getSelection().addRange(range);
}"""
SELECTED = "String(document.getSelection())"


@pytest.fixture
def cookie(transactional_db: None, django_user_model: type) -> str:
    """A signed-in administrator, and three jobs."""
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    for name in ("first", "second", "third"):
        jobhistory.job(name, uid=name, created_at=timezone.now())
    return signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value


def names(page: Page) -> list[str]:
    """The jobs of the list, in its order."""
    return page.locator("#rows tbody tr td:first-child").all_inner_texts()


def test_what_is_opened_ticked_and_chosen_stays_while_other_rows_change(
    address: str, cookie: str
) -> None:
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/")
        page.get_by_text("Columns", exact=True).click()
        box = page.locator("details.columns").get_by_label("IPUs")
        box.uncheck()
        page.get_by_role("link", name="second").evaluate(SELECT)
        page.evaluate("document.querySelector('#rows').sameElement = true")
        change("third", status="Restarting")
        page.locator("tr.is-news").filter(has_text="third").wait_for()
        in_thread(lambda: jobhistory.job("newest", uid="newest", created_at=timezone.now()))
        page.get_by_role("link", name="newest").wait_for()  # a row above moves the others
        expect(page.locator("tr.is-news")).to_have_count(1)
        expect(page.locator("#said")).to_have_text("4 jobs")
        assert page.evaluate(SELECTED) == "second"
        expect(page.locator("details.columns")).to_have_attribute("open", "")
        expect(box).not_to_be_checked()
        assert page.evaluate("document.querySelector('#rows').sameElement")


def test_the_focused_link_stays_where_its_row_goes(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/?sort=name")
        page.get_by_role("link", name="second").focus()
        in_thread(lambda: jobhistory.job("aaa", uid="aaa", created_at=timezone.now()))
        page.get_by_role("link", name="aaa").wait_for()
        expect(page.get_by_role("link", name="second")).to_be_focused()
        in_thread(lambda: JobRecord.objects.filter(name="aaa").delete())
        page.get_by_role("link", name="aaa").wait_for(state="detached")
        expect(page.get_by_role("link", name="second")).to_be_focused()


def test_a_scrolled_table_of_a_phone_stays_scrolled(address: str, cookie: str) -> None:
    with page_of(address, cookie, 600) as page:
        # More than the list shows a phone by itself.
        page.goto("/jobs/?columns=state,name,namespace,group,user,ipus,workers,ended_at,message")
        table = page.locator("#rows .table-responsive")
        assert table.evaluate("(each) => each.scrollWidth - each.clientWidth") > 60
        table.evaluate("(each) => { each.scrollLeft = 60; }")
        change("third", status="Restarting")
        page.locator("tr.is-news").wait_for()
        assert table.evaluate("(each) => each.scrollLeft") == 60


def test_a_filter_and_the_way_back_still_work(address: str, cookie: str) -> None:
    change_to = "Failed"
    in_thread(lambda: JobRecord.objects.filter(name="third").update(status=change_to))
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/")
        page.get_by_role("combobox", name="State").select_option(change_to)
        page.wait_for_url("**/jobs/?status=Failed")
        expect(page.locator("#rows tbody tr")).to_have_count(1)
        change("second", status=change_to)  # the next poll asks for the filtered list
        expect(page.locator("#rows tbody tr")).to_have_count(2)
        page.go_back()
        expect(page.locator("#rows tbody tr")).to_have_count(3)
