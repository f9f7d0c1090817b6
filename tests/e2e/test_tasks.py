"""What an accountant asks, answered in a browser; the clicks are counted."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from ipuhub.months import Month
from tests.e2e.browsing import signed_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

    from tests.e2e.running_demo import RunningDemo


@dataclass
class Visitor:
    """Somebody on the overview who only clicks, and how often they did."""

    page: Page
    clicks: int = 0

    def click(self, found: Locator) -> None:
        self.clicks += 1
        found.click()

    def link(self, name: str) -> Locator:
        return self.page.get_by_role("link", name=name, exact=True).first


@pytest.fixture
def visitor(browser: Browser, demo: RunningDemo) -> Iterator[Visitor]:
    demo.wait_until_recording()
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    signed_in(page, demo)
    yield Visitor(page)
    page.close()


def test_what_a_group_cost_last_month_as_csv_takes_three_clicks(
    visitor: Visitor, demo: RunningDemo
) -> None:
    demo.manage("make_demo_history", "--dir", str(demo.directory))
    try:
        visitor.click(visitor.link("Usage"))
        visitor.click(visitor.link("Last month"))
        with visitor.page.expect_download() as download:
            visitor.click(visitor.link("CSV"))
        last = Month.of(datetime.now(UTC), ZoneInfo("UTC")).previous()
        assert download.value.suggested_filename == f"usage-{last}-by-group.csv"
        with Path(download.value.path()).open(encoding="utf-8") as file:
            groups = {line["group"]: line for line in csv.DictReader(file)}
        assert float(groups["language"]["ipu_hours"]) > 0
        assert {"cost", "cost_before", "currency"} <= set(groups["language"])
        assert visitor.clicks == 3
    finally:
        demo.manage("make_demo_history", "--clear", "--dir", str(demo.directory))


def test_a_line_of_usage_leads_to_users_and_jobs_by_name_and_the_chips_back(
    visitor: Visitor, demo: RunningDemo
) -> None:
    demo.manage("make_demo_history", "--dir", str(demo.directory))
    try:
        page = visitor.page
        visitor.click(visitor.link("Usage"))
        visitor.click(page.locator(".usage-legend").get_by_role("link", name="language"))
        user = page.locator(".usage-table tbody a").first
        name = user.inner_text()
        visitor.click(user)
        page.get_by_role("navigation", name="Filters").get_by_text(name).wait_for()
        assert page.locator(".usage-table thead th").first.inner_text() == "Job"
        visitor.click(page.locator(".usage-filter").last)
        assert page.locator(".usage-filter").count() == 1
        assert page.locator(".usage-table thead th").first.inner_text() == "User"
    finally:
        demo.manage("make_demo_history", "--clear", "--dir", str(demo.directory))
