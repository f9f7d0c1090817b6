"""A browser changes jobs: created from a manifest, suspended, resumed, canceled in two clicks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import yaml

from tests.e2e.browsing import signed_in
from tests.e2e.running_demo import EXAMPLES
from tests.fakes.chromium import expect
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo


def manifest(name: str) -> str:
    job = yaml.safe_load((EXAMPLES / "single-gcd-sample.yaml").read_text(encoding="utf-8"))
    job["metadata"] = {"name": name, "namespace": "default"}
    return yaml.safe_dump(job)


def create(page: Page, demo: RunningDemo, name: str) -> None:
    """Make the job by its form; its page opens from the list."""
    page.goto(f"{demo.dashboard}/jobs/")
    page.get_by_role("link", name="New job").click()
    page.get_by_label("Manifest of an IPUJob").fill("kind: Pod")
    page.get_by_role("button", name="Check").click()
    assert "must have apiVersion" in page.get_by_role("alert").inner_text()
    page.get_by_label("Manifest of an IPUJob").fill(manifest(name))
    page.get_by_role("button", name="Check").click()
    page.get_by_text(f"Kubernetes accepts default/{name} (dry run).").wait_for()
    assert demo.kubectl("get", "ipujob", name, "--ignore-not-found") == ""
    page.get_by_role("button", name="Create").click()
    page.get_by_text(f"Job default/{name} was created.").wait_for()
    wait_until(lambda: _open(page, name), f"{name} in the list")


def test_a_job_is_created_suspended_resumed_and_canceled(
    browser: Browser, demo: RunningDemo
) -> None:
    demo.wait_until_recording()
    name = f"browser-{uuid4().hex[:8]}"  # the demo keeps what an earlier try left
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    signed_in(page, demo)
    create(page, demo, name)
    problems.clear()  # the refused manifest is a 400, which Chromium reports
    state = page.locator(".job-head .badge[data-state]")
    expect(state).to_have_text("Running")
    for button, want in (("Suspend", "Suspended"), ("Resume", "Running")):
        page.get_by_role("link", name=button, exact=True).click()
        page.get_by_text("Kubernetes accepts this (dry run).").wait_for()
        page.get_by_role("button", name=f"{button} the job").click()
        sentence = re.compile(f"Job default/{name} was {button.lower()}e?d")
        expect(page.locator("main")).to_contain_text(sentence)
        expect(state).to_have_text(want)
    uid = demo.job(name)["metadata"]["uid"]
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text(f"Job default/{name} was canceled.").wait_for()
    wait_until(lambda: not demo.kubectl("get", "ipujob", name, "--ignore-not-found"), "it gone")
    page.get_by_text("This job was deleted from the cluster").wait_for()
    page.goto(f"{demo.dashboard}/audit/?name={name}")
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(4)
    assert all("demo-admin" in text for text in rows.all_inner_texts())
    assert problems == []
    page.goto(f"{demo.dashboard}/jobs/{uid}/events/")
    page.get_by_text("admin asked to cancel the job").wait_for()
    page.close()


def shows(page: Page, state: str) -> bool:
    """Load the page of a job again and return whether it shows the state: nothing moves without
    scripts."""
    page.reload()
    return page.locator(f'.job-head .badge[data-state="{state}"]').count() == 1


def test_all_actions_work_without_javascript(browser: Browser, demo: RunningDemo) -> None:
    demo.wait_until_recording()
    name = f"plain-{uuid4().hex[:8]}"
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    signed_in(page, demo)
    assert not page.locator("[data-theme-switch]").is_visible()  # nothing that does nothing
    create(page, demo, name)
    for button, verb, want in (
        ("Suspend", "suspended", "Suspended"),
        ("Resume", "resumed", "Running"),
    ):
        page.get_by_role("link", name=button, exact=True).click()
        page.get_by_role("button", name=f"{button} the job").click()
        page.get_by_text(f"Job default/{name} was {verb}.").wait_for()
        wait_until(lambda want=want: shows(page, want), want)  # type: ignore[misc]
    page.get_by_role("link", name="Run again", exact=True).click()
    page.get_by_role("button", name="Run again").click()
    page.get_by_text(f"Job default/{name}-run2 was created.").wait_for()
    for each in (f"{name}-run2", name):
        page.goto(f"{demo.dashboard}/jobs/?name={each}")
        wait_until(lambda each=each: _open(page, each), f"{each} in the list")  # type: ignore[misc]
        page.get_by_role("link", name="Cancel", exact=True).click()
        page.get_by_role("button", name="Cancel the job").click()
        page.get_by_text(f"Job default/{each} was canceled.").wait_for()
    context.close()


def _open(page: Page, name: str) -> bool:
    found = page.get_by_role("link", name=name, exact=True)
    if not found.count():
        page.reload()
        return False
    found.first.click()
    return True
