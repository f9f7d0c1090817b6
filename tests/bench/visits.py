"""First content and bytes of pages in Chromium, with an empty cache and with a full one.

A `run_web` of its own serves them at the page bench's full history, with its fleet of 4,096 IPUs.
Each first visit has a browser context of its own, so an empty cache; its second visit follows in
the same context. Bytes are what Chromium received, headers too, until the network is quiet.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from tests.bench.largefleet import large_fleet
from tests.bench.pages import configure, filled, signed_in, some_job
from tests.fakes.chromium import shared_browser
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext

PAGES = ("/", "/jobs/", "/queue/", "/fleet/", "/usage/", "/jobs/{job}/")
MOST_MS, MOST_KB, MOST_SCRIPT_KB = 1000, 250, 30
OWN = "/static/ipuhub/"
ROOT = Path(__file__).parents[2]
FIRST_CONTENT = """() => new Promise((found) => new PerformanceObserver((list) => {
  const [paint] = list.getEntriesByName("first-contentful-paint");
  if (paint) found(paint.startTime);
}).observe({type: "paint", buffered: true}))"""


@dataclass
class Visit:
    """The cost of one page: milliseconds to the first content, bytes received, bytes of our own
    scripts."""

    milliseconds: float = 0.0
    received: int = 0
    scripts: int = 0
    addresses: dict[str, str] = field(default_factory=dict)

    def note_answer(self, event: dict[str, Any]) -> None:
        """Remember whose bytes a request's are."""
        self.addresses[event["requestId"]] = urlsplit(event["response"]["url"]).path

    def note_end(self, event: dict[str, Any]) -> None:
        """Add the bytes of a request."""
        size = int(event["encodedDataLength"])
        address = self.addresses.get(event["requestId"], "")
        self.received += size
        if address.startswith(OWN) and "/vendor/" not in address and address.endswith(".js"):
            self.scripts += size


def run(options: argparse.Namespace) -> None:
    """Print a line for each page: first content, and the bytes of a first and a second visit."""
    configure()
    with filled(options), large_fleet():
        client, job = signed_in(), some_job()
        cookies = {name: morsel.value for name, morsel in client.cookies.items()}
        with _web() as address, shared_browser() as browser:
            print(
                f"{'ms':>6} {'longest':>7} {'kB':>7} {'scripts':>7}"
                f" {'again ms':>8} {'kB':>7}  page ({options.rounds} rounds)"
            )
            for page in PAGES:
                _print_page(browser, address, cookies, page.format(job=job), options.rounds)


@contextmanager
def _web() -> Iterator[str]:
    """Yield the address of a web process on the database of the bench."""
    port = free_port()
    command = [sys.executable, "manage.py", "run_web", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stderr=subprocess.DEVNULL)
    address = f"http://localhost:{port}"
    try:
        while not _answers(address):
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _print_page(
    browser: Browser, address: str, cookies: dict[str, str], path: str, rounds: int
) -> None:
    first, second = [], []
    for number in range(rounds + 1):  # the first is thrown away: templates are compiled in it
        context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=address)
        context.add_cookies(
            [{"name": name, "value": value, "url": address} for name, value in cookies.items()]
        )
        visits = _visit(context, path), _visit(context, path)
        context.close()
        if number:
            first.append(visits[0])
            second.append(visits[1])
    times = [visit.milliseconds for visit in first]
    middle = statistics.median(times)
    kilobytes = max(visit.received for visit in first) / 1000
    scripts = max(visit.scripts for visit in first) / 1000
    is_over = middle > MOST_MS or kilobytes > MOST_KB or scripts > MOST_SCRIPT_KB
    print(
        f"{middle:>6.0f} {max(times):>7.0f} {kilobytes:>7.1f} {scripts:>7.1f}"
        f" {statistics.median(visit.milliseconds for visit in second):>8.0f}"
        f" {max(visit.received for visit in second) / 1000:>7.1f}"
        f"  {path}{'  OVER' if is_over else ''}",
        flush=True,
    )


def _visit(context: BrowserContext, path: str) -> Visit:
    """Open a page and wait until its first content is painted and its network is quiet."""
    page, visit = context.new_page(), Visit()
    network = context.new_cdp_session(page)
    network.on("Network.responseReceived", visit.note_answer)
    network.on("Network.loadingFinished", visit.note_end)
    network.send("Network.enable")
    page.goto(path, wait_until="networkidle")
    visit.milliseconds = page.evaluate(FIRST_CONTENT)
    page.close()
    return visit
