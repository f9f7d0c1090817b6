"""A service that an open page needs goes silent: what is known stays, with age and culprit."""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.e2e.running_demo import EXAMPLES
from tests.fakes.chromium import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.e2e.running_demo import RunningDemo

SILENT: Final = {
    "run_devcluster": "The Kubernetes API does not answer",
    "run_vipu_proxy": "The V-IPU Proxy does not answer",
    "partitions.vipu.server.main": "A V-IPU controller does not answer",
    "postgres": "PostgreSQL is unavailable",
}
"""Each process, and what the page says of it."""
AGE: Final = re.compile(r"^\d+ (s|min)$")


def family(pid: int) -> list[int]:
    """Return a process and all that it started, as the sessions of PostgreSQL."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


@contextmanager
def silent(demo: RunningDemo, marker: str) -> Iterator[None]:
    """Keep a process of the demo from answering."""
    stopped = family(demo.pid_of(marker))
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def test_an_open_page_names_what_is_silent_keeps_what_it_knows_and_recovers(
    page: Page, demo: RunningDemo
) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    known = page.locator(".fleet-legend").get_by_role("link", name="ipujob-sample", exact=True)
    known.wait_for()
    page.evaluate("window.sameDocument = true")
    notices = page.locator(":is(#stale, [data-live] .alert):visible")
    for marker, culprit in SILENT.items():
        with silent(demo, marker):
            notice = notices.filter(has_text=culprit).first
            notice.wait_for()
            expect(notice.locator("time[data-age]").first).to_have_text(AGE)
            expect(known).to_be_visible()
        expect(notices).to_have_count(0)
        expect(known).to_be_visible()
    assert page.evaluate("window.sameDocument")
