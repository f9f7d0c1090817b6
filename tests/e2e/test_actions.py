"""A browser changes jobs: created from a manifest, suspended, resumed, canceled in two clicks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

from tests.e2e.browsing import signed_in
from tests.e2e.running_demo import EXAMPLES
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

NAME = "from-the-browser"


def manifest() -> str:
    job = yaml.safe_load((EXAMPLES / "single-gcd-sample.yaml").read_text(encoding="utf-8"))
    job["metadata"] = {"name": NAME, "namespace": "default"}
    return yaml.safe_dump(job)


def create(page: Page, demo: RunningDemo) -> None:
    """Make the job by its form; its page opens from the list."""
    page.goto(f"{demo.dashboard}/jobs/")
    page.get_by_role("link", name="New job").click()
    page.get_by_label("Manifest of an IPUJob").fill("kind: Pod")
    page.get_by_role("button", name="Check").click()
    assert "must have apiVersion" in page.get_by_role("alert").inner_text()
    page.get_by_label("Manifest of an IPUJob").fill(manifest())
    page.get_by_role("button", name="Check").click()
    page.get_by_text(f"Kubernetes accepts default/{NAME} (dry run).").wait_for()
    assert demo.kubectl("get", "ipujob", NAME, "--ignore-not-found") == ""
    page.get_by_role("button", name="Create").click()
    page.get_by_text(f"Job default/{NAME} was created.").wait_for()
    page.get_by_role("link", name=NAME, exact=True).click()


def test_a_job_is_created_suspended_resumed_and_canceled(
    browser: Browser, demo: RunningDemo
) -> None:
    from playwright.sync_api import expect

    demo.wait_until_recording()
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    signed_in(page, demo)
    create(page, demo)
    problems.clear()  # the refused manifest is a 400, which Chromium reports
    state = page.locator(".job-head .badge[data-state]")
    expect(state).to_have_text("Running")
    for button, want in (("Suspend", "Suspended"), ("Resume", "Running")):
        page.get_by_role("link", name=button, exact=True).click()
        page.get_by_text("Kubernetes accepts this (dry run).").wait_for()
        page.get_by_role("button", name=f"{button} the job").click()
        page.get_by_text(re.compile(f"Job default/{NAME} was {button.lower()}e?d")).wait_for()
        expect(state).to_have_text(want)
    uid = demo.job(NAME)["metadata"]["uid"]
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text(f"Job default/{NAME} was canceled.").wait_for()
    wait_until(lambda: not demo.kubectl("get", "ipujob", NAME, "--ignore-not-found"), "it gone")
    page.get_by_text("This job was deleted from the cluster").wait_for()
    page.goto(f"{demo.dashboard}/audit/?name={NAME}")
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(4)
    assert all("demo-admin" in text for text in rows.all_inner_texts())
    assert problems == []
    page.goto(f"{demo.dashboard}/jobs/{uid}/events/")
    page.get_by_text("admin asked to cancel the job").wait_for()
    page.close()
