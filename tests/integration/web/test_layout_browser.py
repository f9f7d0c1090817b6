"""Nothing jumps while a page loads, gets its scripts, and is polled: as Chromium measures it."""

from __future__ import annotations

import pytest
from django.conf import settings as django_settings

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.integration.web.livepages import page_of

MOST = 0.05  # Chromium calls up to 0.1 good
NOTE_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) {
    const moved = entry.sources.map((source) => source.node?.outerHTML?.slice(0, 150) ?? "");
    window.shifts.push([entry.value, moved]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""
PUSH_DOWN = (
    "document.querySelector('main').prepend("
    "Object.assign(document.createElement('div'), {style: 'height: 300px'}))"
)
PAGES = ("/", "/jobs/", "/fleet/", "/partitions/", "/usage/", "/utilization/", "/system/")
TABS = ("", "logs/", "pods/", "events/", "usage/", "yaml/")


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_jumps_while_a_page_loads_and_is_polled(
    address: str, django_user_model: type, width: int
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    jobhistory.jobs(60)
    job = jobhistory.job("train", status="Failed", reason="OOMKilled", message="Out of memory.")
    jobhistory.pod(job, "launcher")
    jobhistory.pod(job)
    jobhistory.partition(job)
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    found = {}
    with page_of(address, cookie, width, zone="Australia/Adelaide") as page:
        page.add_init_script(NOTE_SHIFTS)
        page.add_init_script("localStorage.setItem('zone', 'local')")
        for path in (*PAGES, *(f"/jobs/{job.uid}/{tab}" for tab in TABS)):
            page.goto(path)
            page.locator("#health:is(.is-up, .is-down, .is-unknown)").wait_for()
            if page.locator("[data-live]").count():
                with page.expect_response(lambda answer: answer.status in {200, 304}):
                    page.evaluate(
                        "document.querySelectorAll('[data-live]').forEach((part) => "
                        "window.htmx.trigger(part, 'refresh'))"
                    )
            page.wait_for_load_state("networkidle")
            shifts = page.evaluate("window.shifts")
            if sum(value for value, _ in shifts) > MOST:
                found[path] = shifts
        page.evaluate(PUSH_DOWN)
        page.wait_for_function("window.shifts.some(([value]) => value > 0.05)")  # it does measure
    assert found == {}
