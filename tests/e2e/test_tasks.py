"""Tasks of an admin and an accountant in a browser, with the number of clicks."""

from __future__ import annotations

import csv
import json
import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
import yaml

from tests.e2e.browsing import signed_in
from tests.e2e.running_demo import EXAMPLES
from tests.e2e.yesterday import fail_yesterday
from tests.fakes.longform import IS_LONG
from tests.fakes.waiting import wait_until
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

    from tests.e2e.running_demo import RunningDemo

BUSY = Path(__file__).with_name("busy-fleet.yaml")


@dataclass
class Visitor:
    """A person on the overview who only clicks, and how often they did."""

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


@pytest.fixture
def busy(demo: RunningDemo) -> None:
    """A fleet with jobs that hold IPUs, one of them idle, and jobs that wait."""
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=held")
    wait_until(lambda: demo.status("needs-16-behind") == "Running", "the large job Running")
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=waiting")


@pytest.mark.usefixtures("busy")
def test_what_a_group_cost_is_three_clicks_away_and_a_line_leads_to_users_and_jobs(
    visitor: Visitor, demo: RunningDemo
) -> None:
    overview = visitor.page.url
    demo.manage("make_demo_history", "--dir", str(demo.directory))
    try:
        shows_all_in_the_first_view(visitor)
        downloads_what_groups_cost(visitor)
        assert visitor.clicks == 3
        visitor.page.goto(overview)
        goes_from_a_group_to_jobs_and_back(visitor)
    finally:
        demo.manage("make_demo_history", "--clear", "--dir", str(demo.directory))


def downloads_what_groups_cost(visitor: Visitor) -> None:
    """Last month, as CSV."""
    visitor.click(visitor.link("Usage"))
    visitor.click(visitor.link("Last month"))
    with visitor.page.expect_download() as download:
        visitor.click(visitor.link("CSV"))
    last = Month.of(datetime.now(UTC), ZoneInfo("UTC")).previous()
    assert download.value.suggested_filename == f"usage-{last}-by-group.csv"
    with Path(download.value.path()).open(encoding="utf-8") as file:
        groups = {line["group"]: line for line in csv.DictReader(file)}
    assert float(groups["language"]["ipu_hours"]) > 0
    assert float(groups["language"]["cost"]) > 0
    assert {"cost_before", "currency"} <= set(groups["language"])


def goes_from_a_group_to_jobs_and_back(visitor: Visitor) -> None:
    """By a line of usage, a user's name, and the chips of the filters."""
    page = visitor.page
    visitor.click(visitor.link("Usage"))
    visitor.click(page.locator(".usage-legend").get_by_role("link", name="language"))
    user = page.locator(".usage-table tbody a").first
    name = user.inner_text()
    visitor.click(user)
    page.get_by_role("navigation", name="Filters").get_by_text(name).wait_for()
    assert page.locator(".usage-table thead th").first.inner_text() == "Job"
    visitor.click(page.locator(".usage-filter").last)
    page.locator(".usage-table thead th").first.filter(has_text="User").wait_for()
    assert page.locator(".usage-filter").count() == 1


@pytest.mark.usefixtures("busy")
def test_a_busy_fleet_says_in_one_click_at_most_who_waits_who_holds_ipus_and_which_are_idle(
    visitor: Visitor,
) -> None:
    overview = visitor.page.url
    for says, clicks in (
        (says_why_a_job_waits, 1),
        (says_who_holds_ipus, 0),
        (says_what_is_idle, 0),
    ):
        visitor.page.goto(overview)
        visitor.clicks = 0
        says(visitor)
        assert visitor.clicks == clicks


@pytest.mark.usefixtures("busy")
def test_a_line_of_the_queue_lights_the_ipus_of_who_is_in_its_way(visitor: Visitor) -> None:
    page = visitor.page
    line = page.locator(".fleet-queue tr[data-blockers]").first
    line.wait_for()
    lit = page.locator(".fleet a.is-lit")
    assert lit.count() == 0
    line.hover()
    lit.first.wait_for(state="attached")
    (uids,) = [(line.get_attribute("data-blockers") or "").split()]
    links = {link.get_attribute("href") for link in lit.all()}
    assert links == {f"/jobs/{uid}/" for uid in uids}
    page.locator(".navbar-brand").hover()
    lit.first.wait_for(state="detached")
    line.get_by_role("link").first.focus()
    lit.first.wait_for(state="attached")
    assert "Oldest first." in page.locator(".fleet-queue").inner_text()


def says_why_a_job_waits(visitor: Visitor) -> None:
    visitor.click(visitor.page.locator(".fleet-queue a.fw-medium").first)
    diagnosis = visitor.page.locator(".diagnosis")
    diagnosis.wait_for()
    assert "largest free block" in diagnosis.inner_text()
    facts = dict(
        zip(
            diagnosis.locator("dt").all_inner_texts(),
            diagnosis.locator("dd").all_inner_texts(),
            strict=True,
        )
    )
    assert facts["Position in the queue"].startswith("1 of ")
    assert diagnosis.locator("dd a").first.inner_text() in facts["In the way"]
    assert "UTC" in facts["Starts at the latest"]


def says_who_holds_ipus(visitor: Visitor) -> None:
    """And since when."""
    row = visitor.page.locator(".fleet-legend li", has_text="needs-16-behind").first
    row.wait_for()
    assert row.locator("time").count() >= 1


def says_what_is_idle(visitor: Visitor) -> None:
    """A minute after the partition was made, most of which has passed by now."""
    visitor.page.get_by_text("interactive-sample, for").wait_for(timeout=120_000)


def shows_all_in_the_first_view(visitor: Visitor) -> None:
    """Of a desk's window of 1440 x 900."""
    page = visitor.page
    page.reload()
    page.locator(".held-day svg.day").wait_for()
    assert page.locator(".fleet-queue tbody tr").count() == 4
    assert page.locator(".ended tbody tr").count() == 6
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height <= 900, height


def test_the_log_of_a_job_that_failed_yesterday_takes_three_clicks(
    visitor: Visitor, demo: RunningDemo
) -> None:
    name = f"diverges-{uuid4().hex[:8]}"
    user = fail_yesterday(demo, name)
    try:
        visitor.page.reload()
        visitor.click(visitor.page.get_by_role("link", name="Failed in 24 h"))
        row = visitor.page.locator("tbody tr", has_text=name)
        assert user in row.inner_text()
        visitor.click(row.get_by_role("link", name=name))
        visitor.page.get_by_text("This job was deleted from the cluster").wait_for()
        visitor.click(visitor.link("Logs"))
        kept = visitor.page.locator(".joblog .kept")
        assert "the loss is not a number" in kept.inner_text()
        assert visitor.clicks == 3
    finally:
        demo.manage("make_demo_history", "--clear", "--dir", str(demo.directory))


def health_of(page: Page) -> str:
    """Return the header's text about the components when the page is opened."""
    page.reload()
    page.locator('#health[class*=" is-"]').wait_for()
    return page.locator("#health").inner_text()


def test_which_component_is_down_takes_no_click(visitor: Visitor, demo: RunningDemo) -> None:
    controller = demo.pid_of("partitions.vipu.server.main")
    os.kill(controller, signal.SIGSTOP)
    try:
        wait_until(lambda: "Down: V-IPU controller" in health_of(visitor.page), "it said")
    finally:
        os.kill(controller, signal.SIGCONT)
    wait_until(lambda: "components up" in health_of(visitor.page), "all up again")
    assert visitor.clicks == 0


def test_processes_that_are_stopped_are_named_by_the_api_and_the_header(
    visitor: Visitor, demo: RunningDemo
) -> None:
    """Each within its bound, a Lease's or an answer's; in the long form also within a heartbeat's
    bound, two minutes, which dashboard/test_health tests with a clock of its own."""
    token = demo.manage("make_api_token", "admin", "--dir", str(demo.directory), "--scopes", "read")
    text = next(word for word in token.split() if word.startswith("ipuhub_"))
    request = Request(
        f"{demo.dashboard}/api/v1/components", headers={"Authorization": f"Bearer {text}"}
    )

    def down() -> dict[str, list[str]]:
        with urlopen(request, timeout=60) as answer:
            found = json.load(answer)["results"]
        return {each["name"]: each["absent"] for each in found if each["state"] != "up"}

    markers = ("run_operator", "run_webhooks", "partitions.vipu.agent.main", "run_prober")
    agents = f"V-IPU agents of 127.0.0.1:{demo.ports['V-IPU']}"
    want = {"IPU Operator": [], "Webhooks": [], agents: [f"ag{n}" for n in range(8)], "Prober": []}
    wait_until(lambda: down() == {}, "all up")
    stopped = [demo.pid_of(marker) for marker in markers]
    if IS_LONG:
        worker = demo.pid_of("ipuhub.celery")
        beat = int(Path(f"/proc/{worker}/task/{worker}/children").read_text().split()[0])
        stopped += [demo.pid_of("run_monitor"), worker, beat]
        want |= {"Monitor": [], "Worker": [], "Beat": []}
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: down() == want, "those are down, and nobody else", seconds=300)
        assert f"Down: IPU Operator, Webhooks and {len(want) - 2} more" in health_of(visitor.page)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: down() == {}, "all up again", seconds=300)


def test_a_job_is_canceled_from_its_page_by_two_clicks(visitor: Visitor, demo: RunningDemo) -> None:
    name = f"cancel-{uuid4().hex[:8]}"
    job = yaml.safe_load((EXAMPLES / "single-gcd-sample.yaml").read_text(encoding="utf-8"))
    job["metadata"] = {"name": name, "namespace": "default"}
    demo.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    visitor.page.locator(".fleet-legend").get_by_role("link", name=name).click()
    visitor.click(visitor.link("Cancel"))
    visitor.click(visitor.page.get_by_role("button", name="Cancel the job"))
    visitor.page.get_by_text(f"Job default/{name} was canceled.").wait_for()
    wait_until(lambda: not demo.kubectl("get", "ipujob", name, "--ignore-not-found"), "it gone")
    assert visitor.clicks == 2
