"""The system Chromium, and signing in to the dashboard."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def find_chromium() -> str | None:
    """Path of the browser."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def running_browser(chromium: str) -> Iterator[Browser]:
    """A browser that ends with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def signed_in(page: Page, demo: RunningDemo) -> None:
    """Open the dashboard and sign in as the administrator."""
    page.set_default_timeout(PATIENCE_SECONDS * 1000)
    page.goto(demo.dashboard)
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(demo.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
