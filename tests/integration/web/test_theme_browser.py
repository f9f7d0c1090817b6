"""A user who prefers a dark page gets it, with scripts and without, in the same colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings as django_settings

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

STATES = ("Running", "Failed", "Completed", "Pending", "Restarting", "Suspended")
COLOURS = """() => [...document.querySelectorAll(
  "html, body, header, .card, .card-title, .badge, .table td a, .text-secondary, select, button"
)]
  .filter((part) => !part.closest("#stale, #keys, #health, .zone-switch, .theme-switch, [hidden]"))
  .map((part) => {
    const look = getComputedStyle(part);
    const { color, backgroundColor, borderTopColor, backgroundImage, colorScheme } = look;
    return [part.className, color, backgroundColor, borderTopColor, backgroundImage, colorScheme];
  })"""


def test_a_dark_page_needs_no_scripts(address: str, admin: User) -> None:
    for state in STATES:
        jobhistory.job(f"job-{state.lower()}", status=state)
    cookie = signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value
    found = {}
    for scheme in ("dark", "light"):
        for scripts in (True, False):
            with page_of(address, cookie, 1440, scripts=scripts) as page:
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.goto("/jobs/")
                found[scheme, scripts] = page.evaluate(COLOURS)
    assert len(found["dark", True]) > 40
    assert found["dark", False] == found["dark", True]
    assert found["light", False] == found["light", True]
    assert found["dark", True] != found["light", True]


def test_the_switch_changes_the_colours_and_is_remembered(address: str, admin: User) -> None:
    cookie = signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value
    with page_of(address, cookie, 1440) as page:
        page.emulate_media(color_scheme="light")
        page.goto("/jobs/")
        light = page.evaluate(COLOURS)
        page.locator("summary.nav-user").click()
        page.locator("[data-theme-switch]").click()
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        page.goto("/jobs/")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        assert page.evaluate(COLOURS) != light
