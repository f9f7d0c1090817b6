"""Signing in to the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.e2e.running_demo import RunningDemo


def signed_in(page: Page, demo: RunningDemo) -> None:
    """Open the dashboard as the administrator, who signs in where the demo has ended the session
    of an earlier test: a password takes a quarter of a second of CPU."""
    page.set_default_timeout(PATIENCE_SECONDS * 1000)
    page.context.add_cookies(demo.session)
    page.goto(demo.dashboard)
    if page.get_by_label("User name").count():
        page.get_by_label("User name").fill("admin")
        page.get_by_label("Password").fill(demo.password)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        demo.session = [{**each} for each in page.context.cookies()]
    page.get_by_role("heading", name="Overview").wait_for()
