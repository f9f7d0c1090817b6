"""Signing in to the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.e2e.running_demo import RunningDemo


def signed_in(page: Page, demo: RunningDemo) -> None:
    """Open the dashboard and sign in as the administrator."""
    page.set_default_timeout(PATIENCE_SECONDS * 1000)
    page.goto(demo.dashboard)
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(demo.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
