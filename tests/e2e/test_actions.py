"""A browser changes jobs by its keyboard alone: each action, with and without scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import yaml

from tests.e2e.browsing import signed_in
from tests.e2e.keyboard import enter, write
from tests.e2e.running_demo import EXAMPLES
from tests.fakes.chromium import expect
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

STATES = (("Suspend", "suspended", "Suspended"), ("Resume", "resumed", "Running"))
AUDITED = ("cancel", "resume", "suspend", "scale", "create")


def manifest(name: str, example: str) -> str:
    job = yaml.safe_load((EXAMPLES / example).read_text(encoding="utf-8"))
    job["metadata"] = {"name": name, "namespace": "default"}
    return yaml.safe_dump(job)


def create(page: Page, demo: RunningDemo, name: str, example: str) -> None:
    """Make the job by its form; its page opens from the list."""
    page.goto(f"{demo.dashboard}/jobs/")
    enter(page.get_by_role("link", name="New job"))
    write(page.get_by_label("Manifest of an IPUJob"), "kind: Pod")
    enter(page.get_by_role("button", name="Check"))
    assert "must have apiVersion" in page.get_by_role("alert").inner_text()
    write(page.get_by_label("Manifest of an IPUJob"), manifest(name, example))
    enter(page.get_by_role("button", name="Check"))
    page.get_by_text(f"Kubernetes accepts default/{name} (dry run).").wait_for()
    assert demo.kubectl("get", "ipujob", name, "--ignore-not-found") == ""
    enter(page.get_by_role("button", name="Create"))
    page.get_by_text(f"Job default/{name} was created.").wait_for()
    wait_until(lambda: _open(page, name), f"{name} in the list")


def change(page: Page, name: str, button: str, verb: str) -> None:
    """Act on the job of the page that is open, and confirm it; Kubernetes accepts it first."""
    enter(page.get_by_role("link", name=button, exact=True))
    page.get_by_text("Kubernetes accepts this (dry run).").wait_for()
    enter(page.get_by_role("button", name=f"{button} the job"))
    page.get_by_text(f"Job default/{name} was {verb}.").wait_for()


def scale(page: Page, demo: RunningDemo, name: str) -> None:
    """From two instances to three: the form says what changes, and asks before it does."""
    enter(page.get_by_role("link", name="Scale", exact=True))
    write(page.get_by_label("Instances"), "3")
    enter(page.get_by_role("button", name="Check"))
    changes = page.get_by_role("table", name="What changes").locator("tbody tr")
    expect(changes).to_have_text([re.compile(r"spec\.jobInstances\s*2\s*3")])
    assert demo.job(name)["spec"]["jobInstances"] == 2
    enter(page.get_by_role("button", name="Scale to 3"))
    page.get_by_text(f"Job default/{name} was scaled.").wait_for()
    assert demo.job(name)["spec"]["jobInstances"] == 3
    pods = ("get", "pods", "-l", f"app.kubernetes.io/instance={name}", "-o", "name")
    wait_until(lambda: len(demo.kubectl(*pods).split()) == 3, "a pod of the third instance")


def test_a_job_is_created_scaled_suspended_resumed_and_canceled(
    browser: Browser, demo: RunningDemo
) -> None:
    demo.wait_until_recording()
    name = f"browser-{uuid4().hex[:8]}"  # the demo keeps what an earlier try left
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    signed_in(page, demo)
    create(page, demo, name, "inference-1x.yaml")
    problems.clear()  # the refused manifest is a 400, which Chromium reports
    state = page.locator(".job-head .badge[data-state]")
    expect(state).to_have_text("Running")
    scale(page, demo, name)
    for button, verb, want in STATES:
        change(page, name, button, verb)
        expect(state).to_have_text(want)
    uid = demo.job(name)["metadata"]["uid"]
    change(page, name, "Cancel", "canceled")
    wait_until(lambda: not demo.kubectl("get", "ipujob", name, "--ignore-not-found"), "it gone")
    page.get_by_text("This job was deleted from the cluster").wait_for()
    page.goto(f"{demo.dashboard}/audit/?name={name}")
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(len(AUDITED))
    for row, action in zip(rows.all(), AUDITED, strict=True):
        expect(row.locator("td")).to_contain_text(["accepted", action, name, "default", "admin"])
        expect(row).to_contain_text("demo-admin")
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
    create(page, demo, name, "single-gcd-sample.yaml")
    for button, verb, want in STATES:
        change(page, name, button, verb)
        wait_until(lambda want=want: shows(page, want), want)  # type: ignore[misc]
    enter(page.get_by_role("link", name="Run again", exact=True))
    enter(page.get_by_role("button", name="Run again"))
    page.get_by_text(f"Job default/{name}-run2 was created.").wait_for()
    for each in (f"{name}-run2", name):
        page.goto(f"{demo.dashboard}/jobs/?name={each}")
        wait_until(lambda each=each: _open(page, each), f"{each} in the list")  # type: ignore[misc]
        change(page, each, "Cancel", "canceled")
    context.close()


def _open(page: Page, name: str) -> bool:
    found = page.get_by_role("link", name=name, exact=True)
    if not found.count():
        page.reload()
        return False
    enter(found.first)
    return True
