"""The bars of a month in a real browser: what they measure, what the pointer says, and on paper."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from tests.builders.clients import browser as signed_in_client
from tests.builders.lifetimes import at, store_pod
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from playwright.sync_api import Locator, Page

BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-")
GRID_LINES = (
    """(lines) => lines.map((each) => Number(each.getAttribute("d").match(/ ([\\d.]+)H/)[1]))"""
)


@pytest.fixture
def cookie(transactional_db: None, admin: User, monkeypatch: pytest.MonkeyPatch) -> str:
    """An accountant of two groups: on the 2nd one has 8 IPU-hours and the other 4, on the 4th one
    has 4."""
    monkeypatch.setattr(timezone, "now", lambda: at("2026-11-21T12:00"))
    store_pod("2026-11-02T01:00", "2026-11-02T03:00", ipus=4, group="vision")
    store_pod("2026-11-02T01:00", "2026-11-02T02:00", ipus=4, group="speech")
    store_pod("2026-11-04T01:00", "2026-11-04T02:00", ipus=4, group="vision")
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


def drawn(page: Page) -> Locator:
    """The chart, once it is drawn."""
    page.goto("/usage/?month=2026-11&by=group")
    page.locator(".usage-legend").wait_for()
    return page.locator(".usage-chart svg")


def bars(chart: Locator) -> list[list[tuple[float, ...]]]:
    """Left, top, width and height of each bar of each series."""
    shapes = chart.locator("g path[class]").evaluate_all(
        "(all) => all.map((p) => p.getAttribute('d'))"
    )
    return [[tuple(map(float, bar)) for bar in BAR.findall(shape)] for shape in shapes]


def test_bars_are_as_tall_as_their_hours_and_stand_on_each_other(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        chart = drawn(page)
        (second, fourth), (other,) = bars(chart)
        assert second[3] == pytest.approx(2 * fourth[3], abs=0.02)
        assert other[3] == pytest.approx(fourth[3], abs=0.02)
        assert other[1] + other[3] == pytest.approx(second[1], abs=0.02)
        assert other[0] == second[0] < fourth[0]
        lines = chart.locator(".line").evaluate_all(GRID_LINES)
        labels = chart.locator("> text").all_text_contents()
        assert labels[0] == "0"
        hours = float(labels[1]) * second[3] / (lines[0] - lines[1])
        assert hours == pytest.approx(8, rel=0.02)  # lines lie on whole pixels


def test_the_pointer_names_a_day_and_its_hours(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        chart = drawn(page)
        legend = page.locator(".usage-legend")
        assert re.sub(r"\s+", " ", legend.inner_text()) == "Month 16.00 vision 12.00 speech 4.00"
        day = chart.get_by_text("2", exact=True).last.bounding_box()
        assert day
        page.mouse.move(day["x"] + day["width"] / 2, day["y"] - 40)
        assert (
            re.sub(r"\s+", " ", legend.inner_text()) == "2026-11-02 12.00 vision 8.00 speech 4.00"
        )
        page.mouse.move(0, 0)
        assert legend.inner_text().startswith("Month")


def test_a_chart_fits_its_place_at_each_width_and_on_paper(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        chart = drawn(page)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 860})
            page.wait_for_function(
                "() => { const svg = document.querySelector('.usage-chart svg');"
                " return svg.viewBox.baseVal.width === svg.parentElement.clientWidth; }"
            )
            boxes = chart.locator("text").evaluate_all(
                "(all) => all.map((text) => text.getBoundingClientRect().toJSON())"
            )
            place = page.locator(".usage-chart").bounding_box()
            assert place
            assert all(place["x"] <= each["left"] for each in boxes)
            assert all(each["right"] <= place["x"] + place["width"] + 4 for each in boxes)
            days = sorted((b["left"], b["right"]) for b in boxes if b["top"] > place["y"] + 100)
            days = [b for b in days if b[0] > place["x"] + 20]
            assert all(one[1] < two[0] for one, two in pairwise(days))
        page.emulate_media(media="print")
        page.wait_for_function(
            "() => document.querySelector('.usage-chart svg').viewBox.baseVal.width === 1000"
        )
