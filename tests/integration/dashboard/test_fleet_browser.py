"""The fleet map in a browser: keyboard use, and changes while the page is open."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings

from tests.builders.clients import browser as signed_in_client
from tests.builders.fleetrows import NOON, job_row
from tests.fakes.chromium import expect
from tests.integration.web.livepages import axe_violations, live_server, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from tests.fakes.background import Cluster, Proxy

FOCUSED = "document.activeElement.querySelector('title')?.textContent ?? ''"
STOPS = "document.querySelectorAll('[data-map] svg a[tabindex=\"0\"]').length"
IS_WHOLE = "cell => cell.scrollWidth <= cell.clientWidth"
NUMBER = "[...document.querySelectorAll('[data-map] svg a')].indexOf(document.activeElement)"
NOTE_AFTER_SWAP = (
    f"document.addEventListener('htmx:afterSwap', () => {{ window.numberAfterSwap = {NUMBER}; }})"
)


def with_other_squares(route: Route) -> None:
    """Answer a poll with the map in another form: the squares that had the focus are gone."""
    headers = {**route.request.headers}
    headers.pop("if-none-match", None)
    answer = route.fetch(headers=headers)
    before, data_map, after = answer.text().partition(" data-map ")
    after = after.replace("<svg", '<div class="other"><svg').replace("</svg>", "</svg></div>")
    route.fulfill(response=answer, body=before + data_map + after)


def focused(page: Page) -> str:
    """The words of the IPU that has the focus."""
    found: str = page.evaluate(FOCUSED)
    return found


@pytest.mark.usefixtures("transactional_db")
def test_the_map_is_one_stop_whose_arrows_reach_every_ipu_and_a_toast_says_what_changed(
    cluster: Cluster, proxy: Proxy, django_user_model: type
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    cluster.add_job("bert", "team-a", launcherStatus="Running", workersStatus={"active": 1})
    proxy.hold("bert", "team-a", 4)
    job_row("bert", uid="uid-bert")
    with live_server() as address:
        with page_of(address, cookie, 390) as page:
            page.goto("/fleet/")
            says = page.locator("[data-map-says]")
            expect(says).to_have_text("Touch an IPU to open its job.")
            assert says.evaluate("line => line.scrollWidth <= line.clientWidth"), "it is cut off"
        with page_of(address, cookie, 1280) as page:
            page.goto("/fleet/")
            assert page.evaluate(STOPS) == 1
            assert axe_violations(page) == []
            page.locator("[data-map] svg a").first.focus()
            first = focused(page)
            assert "team-a/bert" in first
            expect(page.locator("[data-map-says]")).to_have_text(first)
            page.keyboard.press("ArrowRight")
            assert focused(page).startswith(first.partition(":")[0])
            for _ in range(3):
                page.keyboard.press("ArrowRight")
            assert focused(page).endswith("free")
            page.keyboard.press("Home")
            page.keyboard.press("ArrowDown")
            below = focused(page)
            assert below not in {"", first}
            assert page.evaluate(STOPS) == 1
            cluster.add_job("yolo", "team-a", launcherStatus="Running")
            proxy.hold("yolo", "team-a", 8)
            page.get_by_role("link", name="yolo", exact=True).first.wait_for()
            page.keyboard.press("ArrowUp")  # the stop is where it was, after a change, too
            assert focused(page) == first
            page.keyboard.press("ArrowRight")
            assert page.evaluate(NUMBER) == 1
            page.evaluate(NOTE_AFTER_SWAP)
            page.route("**/fleet/**", with_other_squares)
            page.locator("[data-map] .other").first.wait_for()
            assert page.evaluate("window.numberAfterSwap") == 1  # of a job's squares, the same one
            page.keyboard.press("Enter")
            page.wait_for_url("**/jobs/uid-bert/")
        with page_of(address, cookie, 1280) as page:
            page.goto("/")
            cluster.add_job("new", "team-a", launcherStatus="Running")
            toast = page.locator("#toast")
            toast.wait_for()
            assert toast.inner_text() == "3 running, 0 pending"
        with page_of(address, cookie, 1280, scripts=False) as page:
            page.goto("/fleet/")
            page.locator("[data-map] svg a").first.click()
            page.wait_for_url("**/jobs/uid-bert/")
            page.goto("/fleet/")
            page.get_by_role("link", name="As a table").click()
            expect(page.locator("tbody tr")).to_have_count(32)


@pytest.mark.usefixtures("transactional_db")
def test_the_overview_cuts_how_long_others_ran_before_the_blockers_of_a_job(
    cluster: Cluster, proxy: Proxy, django_user_model: type
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    for name in ("resnet50", "bert-large"):
        cluster.add_job(name, "team-a", launcherStatus="Running", workersStatus={"active": 1})
        proxy.hold(name, "team-a", 16)
        job_row(name, uid=f"uid-{name}")
    uid = cluster.add_job("large", "team-a")
    proxy.hold("large", "team-a", 32, uid=uid)
    job_row("large", uid=uid, ipus=32)
    job_row("before", ipus=32, started_at=NOON, completed_at=NOON + timedelta(minutes=25))
    with live_server() as address, page_of(address, cookie, 1440) as page:
        page.goto("/")
        line = page.locator(".fleet-queue .reason")
        expect(line.locator(".because")).to_contain_text("bert-large")
        assert line.locator(".because").evaluate(IS_WHOLE)
        assert not line.locator(".when").evaluate(IS_WHOLE)  # else there was room for both
        assert "jobs of this size ran 25 min" in (line.get_attribute("title") or "")
