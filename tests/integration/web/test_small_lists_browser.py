"""The lists of administration on a phone and on paper."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import FEW, month_with_report, rows_of_administration
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.web.livepages import page_of
from tests.integration.web.test_jobs_browser import PHONE
from usage.models import MonthReport

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from playwright.sync_api import Page

ROWS: Final = {
    "/audit/": 50,
    "/account/roles/": 50,
    "/account/users/": 41,
    "/account/tokens/": FEW,
    "/account/notifications/": FEW + 50,
    "/usage/gaps/": 50,
    "/usage/faults/": 50,
    "/usage/rates/": 25,
    "/usage/reports/": 24,
}
"""What each of these lists shows here: a full page, or more than a site has."""
HEIGHTS: Final = """() => [...document.querySelectorAll("main .table-responsive")]
  .map((each) => each.offsetHeight)"""
NOT_IN_VIEW: Final = """() => [...document.querySelectorAll("main td")]
  .filter((cell) => cell.offsetWidth && cell.getBoundingClientRect().right > innerWidth)
  .map((cell) => cell.outerHTML.slice(0, 100))"""
CLICKED: Final = """() => [...document.querySelectorAll("header, main .btn, main form.card")]
  .filter((each) => each.offsetHeight && !each.matches(".filters")).map((each) => each.outerHTML)"""


@pytest.fixture
def cookie(transactional_db: None, admin: User, django_user_model: type[User]) -> str:
    """A signed-in administrator of a site with a long past."""
    rows_of_administration(admin, 50)
    for number in range(24):
        store_rate("instance", "1.25", name=f"a-type-of-instance-with-a-long-name-{number}")
    for number in range(40):
        user = django_user_model.objects.create_user(f"user-{number:02d}")
        grant(user, "viewer", f"team-{number}")
    jobhistory.pod(jobhistory.job(created_at=timezone.now() - dt.timedelta(days=40)))
    month_with_report()
    made = MonthReport.objects.get()
    for number in range(23):
        made.pk, made.state, made.month = (
            None,
            "closed",
            f"20{24 - number // 12}-{12 - number % 12:02d}",
        )
        made.save()
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


def keep(page: Page, path: str) -> None:
    """Keep a picture and a print of the page for a person to look at, in SCREENSHOTS."""
    if folder := os.environ.get("SCREENSHOTS"):
        name = path.strip("/").replace("/", "-")
        page.screenshot(path=Path(folder) / f"{name}-390.png", full_page=True)
        page.pdf(path=Path(folder) / f"{name}.pdf", format="A4", prefer_css_page_size=True)


def test_a_small_list_takes_at_most_four_screens_of_a_phone_and_prints(
    address: str, cookie: str
) -> None:
    with page_of(address, cookie, 390) as page:
        for path, rows in ROWS.items():
            page.goto(path)
            keep(page, path)
            assert page.locator("main tbody tr").count() == rows, path
            heights = page.evaluate(HEIGHTS)
            assert max(heights) <= 4 * PHONE, (path, heights)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
            assert page.evaluate(NOT_IN_VIEW) == [], path
            page.emulate_media(media="print")
            assert page.evaluate(CLICKED) == [], path
            assert page.locator("h1").bounding_box()["width"] > 20, path  # type: ignore[index]
            assert page.get_by_text("As of 20").is_visible(), path
            page.emulate_media(media="null")
