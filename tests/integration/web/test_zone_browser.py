"""The switch UTC | local, in browsers of other zones: pages, polled parts, prints, exports."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.integration.web.livepages import page_of
from tests.integration.web.test_jobs_browser import change

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CREATED = dt.datetime(2026, 1, 31, 20, 15, 30, tzinfo=dt.UTC)
UTC_WORDS = "2026-01-31 20:15:30"
ZONES = (
    (
        "Australia/Adelaide",
        "2026-02-01 06:45:30",
    ),  # the next month, and half an hour beside the hour
    ("America/St_Johns", "2026-01-31 16:45:30"),
)


@pytest.fixture
def cookie(transactional_db: None, django_user_model: type) -> str:
    """A signed-in administrator; a job of January that waits, and was deleted."""
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    job = jobhistory.job("waits", status="Pending", created_at=CREATED, uid="waits")
    jobhistory.transition(job, "Pending", 0, "NoCapacity")
    jobhistory.job("gone", created_at=CREATED, deleted_at=CREATED, uid="gone")
    return signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value


def created(page: Page) -> Locator:
    """Return the time of creation on the page of a job."""
    return page.locator("dt", has_text="Created").locator("xpath=../dd/time")


def switch(page: Page) -> Locator:
    """The button in the user's menu."""
    return page.locator(".user-menu-list [data-zone-switch]")


def press(page: Page) -> None:
    """Open the menu, switch, and close the menu."""
    page.locator("summary.nav-user").click()
    switch(page).click()
    page.keyboard.press("Escape")


@pytest.mark.parametrize(("zone", "want"), ZONES)
def test_the_switch_shows_local_times_names_the_zone_and_is_remembered(
    address: str, cookie: str, zone: str, want: str
) -> None:
    with page_of(address, cookie, 1440, zone=zone) as page:
        page.goto("/jobs/waits/")
        expect(created(page)).to_have_text(UTC_WORDS)
        expect(switch(page)).to_have_text("Time zone UTC")
        expect(page.locator("[data-zone-note]")).to_be_hidden()
        press(page)
        expect(created(page)).to_have_text(want)
        expect(created(page)).to_have_attribute("title", f"{UTC_WORDS} UTC")
        words = f"Times are local time, {zone}. Switch to UTC"
        expect(switch(page)).to_have_attribute("title", words)
        page.goto("/jobs/gone/")
        expect(switch(page)).to_have_text(f"Time zone {zone}")
        expect(page.locator("[data-zone-note]")).to_contain_text(f"Times are local time, {zone}.")
        expect(page.locator("#rows")).to_contain_text(f"{want} local time")
        press(page)
        expect(page.locator("#rows")).to_contain_text(f"{UTC_WORDS} UTC")
        expect(page.locator("#rows")).not_to_contain_text("local time")
        page.reload()
        expect(switch(page)).to_have_text("Time zone UTC")


def test_a_polled_part_arrives_in_local_time(address: str, cookie: str) -> None:
    zone, want = ZONES[0]
    with page_of(address, cookie, 1440, zone=zone) as page:
        page.goto("/jobs/waits/")
        press(page)
        change("waits", status="Restarting")
        page.locator("#rows[data-say='waits is Restarting']").wait_for()
        expect(created(page)).to_have_text(want)
        expect(created(page)).to_have_attribute("title", f"{UTC_WORDS} UTC")


def test_prints_and_files_stay_in_utc(address: str, cookie: str) -> None:
    zone, want = ZONES[0]
    with page_of(address, cookie, 1440, zone=zone) as page:
        page.goto("/jobs/waits/")
        press(page)
        expect(created(page)).to_have_text(want)
        page.emulate_media(media="print")
        expect(created(page)).to_have_text(UTC_WORDS)
        page.emulate_media(media="screen")
        expect(created(page)).to_have_text(want)
        assert "2026-01-31T20:15:30" in page.request.get("/jobs/?format=csv").text()


def test_other_windows_follow_the_switch(address: str, cookie: str) -> None:
    zone, want = ZONES[0]
    with page_of(address, cookie, 1440, zone=zone) as page:
        page.goto("/jobs/waits/")
        other = page.context.new_page()
        other.goto("/jobs/waits/")
        press(other)
        expect(created(page)).to_have_text(want)


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_the_menu_shows_the_zone_and_switches_it_by_keyboard(
    address: str, cookie: str, width: int
) -> None:
    """In a line of its own, which names the zone in full and stays open to show the change."""
    zone, want = "America/North_Dakota/New_Salem", "2026-01-31 14:15:30"  # a long name
    with page_of(address, cookie, width, zone=zone) as page:
        page.goto("/jobs/waits/")
        expect(page.locator("header [data-zone-switch]:visible")).to_have_count(0)
        page.locator("summary.nav-user").focus()
        page.keyboard.press("Enter")
        expect(switch(page)).to_be_visible()
        theme = page.locator("[data-theme-switch]")
        theme.focus()
        page.keyboard.press("ArrowDown")
        expect(switch(page)).to_be_focused()
        page.keyboard.press("Enter")
        expect(created(page)).to_have_text(want)
        expect(switch(page)).to_have_text(f"Time zone {zone}")
        expect(page.locator("#said")).to_have_text(f"Times are local time, {zone}")
        name = switch(page).locator("span")
        assert name.evaluate("(text) => text.scrollWidth <= text.clientWidth")
        health = page.locator("#health.is-down .sentence")  # in full, now that the switch is gone
        if width >= 768:
            assert health.evaluate("(text) => text.scrollWidth <= text.clientWidth")
        box, above = switch(page).bounding_box(), theme.bounding_box()
        assert box
        assert above
        assert box["height"] >= 24
        assert box["height"] == above["height"]  # one line
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_all_is_utc_and_there_is_no_switch(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1440, scripts=False, zone=ZONES[0][0]) as page:
        page.goto("/jobs/waits/")
        expect(created(page)).to_have_text(UTC_WORDS)
        page.locator("summary.nav-user").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        expect(switch(page)).to_be_hidden()
        expect(page.locator("[data-zone-note]")).to_be_hidden()
