"""The admin's browser: sign in, see a job run, sign out; wide and narrow, light and dark."""

from __future__ import annotations

import os
import re
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.browsing import signed_in
from tests.e2e.keyboard import enter, press, write
from tests.e2e.running_demo import EXAMPLES
from tests.fakes.chromium import expect
from tests.integration.web.test_layout_browser import NOTE_SHIFTS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

MOST_SHIFTED = 0.1  # what Chromium calls good


def test_a_job_shows_as_running_within_five_seconds_without_a_reload(
    browser: Browser, demo: RunningDemo
) -> None:
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.add_init_script(NOTE_SHIFTS)
    signed_in(page, demo)
    page.locator("#live[data-say^='0 running']").wait_for(state="attached")
    apply = ("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    row = page.locator("#live[data-say^='1 running'] .fleet-legend").get_by_role(
        "link", name="ipujob-sample", exact=True
    )
    was_quick = False
    for _ in range(3):  # the machine may have other things to do in one of the times
        demo.kubectl("delete", "ipujob", "ipujob-sample", "--ignore-not-found", "--timeout=120s")
        expect(row).to_have_count(0)
        demo.kubectl(*apply)
        began = time.monotonic()
        row.first.wait_for()
        was_quick = time.monotonic() - began < 5
        if was_quick:
            break
    assert was_quick, "three times it took longer than five seconds"
    assert page.get_by_text("4 of 32").count() >= 1
    assert "p-ipujob-sample-default-0" in page.content()
    expect(page.locator("#toast")).to_have_text("1 running, 0 pending")
    assert problems == []
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, _ in shifts) <= MOST_SHIFTED, shifts
    page.locator("summary.nav-user").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("User name").wait_for()
    page.close()


def test_a_wrong_password_is_refused_in_words(browser: Browser, demo: RunningDemo) -> None:
    page = browser.new_page()
    page.goto(demo.dashboard)
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill("guess")
    page.get_by_role("button", name="Sign in").click()
    assert "correct username and password" in page.get_by_role("alert").inner_text()
    page.close()


def test_the_overview_fits_its_window(browser: Browser, demo: RunningDemo) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    for width, scheme in product((1280, 390), ("light", "dark")):
        context = browser.new_context(
            viewport={"width": width, "height": 860},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        page = context.new_page()
        signed_in(page, demo)
        page.get_by_text("ipujob-sample", exact=True).first.wait_for()
        assert page.evaluate("document.documentElement.getAttribute('data-bs-theme')") == scheme
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme)
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            page.screenshot(path=Path(folder) / f"overview-{width}-{scheme}.png", full_page=True)
        context.close()


def test_all_of_the_navigation_is_on_the_screen(browser: Browser, demo: RunningDemo) -> None:
    page = browser.new_page()
    signed_in(page, demo)
    for width in (768, 892, 1100):
        page.set_viewport_size({"width": width, "height": 860})
        assert page.evaluate("innerWidth") == width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        items = page.locator("header a, header button").all()
        boxes = [box for item in items if (box := item.bounding_box()) is not None]
        assert len(boxes) == len(items), width
        assert max(box["x"] + box["width"] for box in boxes) <= width, width
    page.close()


def test_the_map_names_an_ipus_holder_and_leads_to_it(browser: Browser, demo: RunningDemo) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    page = browser.new_page()
    signed_in(page, demo)
    page.goto(demo.dashboard.rstrip("/") + "/fleet/")
    square = page.locator(".machine a").filter(has_text="p-ipujob-sample-default-0").first
    square.wait_for(state="attached")
    assert page.locator(".machine").count() == 8
    page.locator(".fleet-legend").get_by_role("link", name="ipujob-sample").click()
    page.get_by_role("heading", name="ipujob-sample").wait_for()
    page.go_back()
    page.get_by_role("link", name="State", exact=True).click()
    page.wait_for_url("**/fleet/?fill=state")
    page.close()


def test_the_keyboard_alone_searches_and_moves(browser: Browser, demo: RunningDemo) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    page = browser.new_page()
    signed_in(page, demo)
    page.get_by_role("link", name="ipujob-sample", exact=True).first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog").get_by_role("link").first).to_be_focused()
    page.keyboard.press("Escape")
    row = page.locator("#rows tbody a").first
    expect(row).to_be_focused()  # where the reader was
    page.keyboard.press("/")
    page.keyboard.type("job-sam")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=job-sam")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="ipujob-sample").wait_for()
    page.close()


def test_filter_tokens_and_subscriptions_need_no_pointer(page: Page, demo: RunningDemo) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    page.goto(f"{demo.dashboard}/jobs/")
    job = page.locator("#rows").get_by_role("link", name="ipujob-sample", exact=True)
    job.first.wait_for()
    status = page.get_by_role("combobox", name="State")
    press(status, "P")
    page.wait_for_url("**/jobs/?status=Pending")
    expect(job).to_have_count(0)
    expect(status).to_be_focused()
    page.goto(f"{demo.dashboard}/account/tokens/")
    write(page.get_by_label("Purpose"), "by keys")
    scope = page.get_by_role("checkbox", name=re.compile("^reports"))
    expect(scope).to_be_checked()
    press(scope, "Space")
    expect(scope).not_to_be_checked()
    enter(page.get_by_role("button", name="Create token"))
    expect(page.get_by_label("The new token")).to_have_value(re.compile("^ipuhub_"))
    revoke = page.get_by_role("button", name="Revoke by keys")
    enter(revoke)
    expect(revoke).to_have_count(0)
    page.goto(f"{demo.dashboard}/account/notifications/")
    press(page.get_by_label("Event"), "ArrowDown")
    write(page.get_by_label("To", exact=True), "https://chat.example/by-keys")
    enter(page.get_by_role("button", name="Subscribe"))
    expect(page.get_by_label("The secret")).not_to_have_value("")
    delete = page.get_by_role("button", name="Delete https://chat.example/by-keys")
    enter(delete)
    expect(delete).to_have_count(0)


def test_paper_has_title_and_heads_in_ink_and_nothing_to_click(
    browser: Browser, demo: RunningDemo
) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    signed_in(page, demo)
    page.emulate_media(media="print")
    assert page.get_by_role("heading", name="Overview").bounding_box()["width"] > 20  # type: ignore[index]
    page.goto(demo.dashboard.rstrip("/") + "/jobs/?columns=state,name")
    page.get_by_role("link", name="ipujob-sample", exact=True).first.wait_for()
    assert page.get_by_role("heading", name="Jobs", exact=True).is_visible()
    assert page.get_by_text("As of 20").is_visible()
    for hidden in ("header.navbar", ".filters", ".columns", ".chips"):
        assert not page.locator(hidden).first.is_visible()
    style = "e => [getComputedStyle(e).display, getComputedStyle(e).color]"
    assert page.locator("thead").first.evaluate(style)[0] == "table-header-group"
    assert page.locator(".badge").first.evaluate(style)[1] == "rgb(0, 0, 0)"
    page.emulate_media(media="screen")
    page.goto(demo.dashboard.rstrip("/") + "/jobs/?user=nobody")
    page.emulate_media(media="print")
    assert page.get_by_role("combobox", name="User").is_visible()  # by what the list is filtered
    context.close()
