"""`make screenshots`: every page, wide and narrow, light and dark, into build/screenshots.

Starts a demo of its own, writes the sample history into it, and lets jobs run and wait. Also says
of each page whether it is wider than its window or made the browser complain. The overview of
README and docs (docs/images) is made anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.browsing import find_chromium, running_browser, signed_in
from tests.e2e.running_demo import ROOT, start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

FOLDER = ROOT / "build" / "screenshots"
OF_DOCS = ROOT / "docs" / "images"
BUSY = Path(__file__).with_name("busy-fleet.yaml")
WIDTHS = (1440, 768, 390)
SCHEMES = ("light", "dark")
OF_A_JOB = ("jobs:detail", "jobs:pods", "jobs:events", "jobs:usage", "jobs:yaml")
PAGES = (
    "overview",
    "fleet",
    "jobs:list",
    "jobs:detail",
    "jobs:pods",
    "jobs:events",
    "jobs:usage",
    "jobs:yaml",
    "partitions:list",
    "partitions:stats",
    "partitions:query",
    "usage:month",
    "usage:lifetimes",
    "utilization",
    "usage:reports",
    "usage:rates",
    "system",
    "account-tokens",
    "account-password",
    "account-notifications",
    "account-users",
    "role-changes",
)


def main() -> int:
    """Take all pictures; return how many pages have a problem."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("Chromium is not installed (Debian: apt-get install chromium)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ipuhub-screenshots-") as folder:
        demo = start_demo(Path(folder) / "demo")
        try:
            addresses = prepare(demo)
            with running_browser(chromium) as browser:
                problems = take(browser, demo, addresses)
                show(browser, demo)
        finally:
            stop_demo(demo)
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")
    for problem in problems:
        print("PROBLEM:", problem)
    return len(problems)


def prepare(demo: RunningDemo) -> dict[str, str]:
    """Fill the demo; return the pages' addresses by name."""
    demo.wait_until_recording()
    demo.manage("make_demo_history", "--dir", str(demo.directory))
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=held")
    wait_until(lambda: demo.status("needs-16-behind") == "Running", "the large job Running")
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=waiting")
    uid = demo.job("needs-16-behind")["metadata"]["uid"]
    return addresses_of({page: [uid] for page in PAGES if page in OF_A_JOB})


def addresses_of(arguments: dict[str, list[str]]) -> dict[str, str]:
    """Path of each page."""
    code = (
        "import json, sys, django; django.setup(); from django.urls import reverse; "
        "pages, arguments = json.loads(sys.argv[1]); "
        "print(json.dumps({p: reverse(p, args=arguments.get(p, [])) for p in pages}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([PAGES, arguments])],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
            "IPUHUB_SECRET_KEY": "for addresses only " * 4,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def take(browser: Browser, demo: RunningDemo, addresses: dict[str, str]) -> list[str]:
    """Visit every page in every width and scheme; return what is wrong."""
    problems: list[str] = []
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,  # type: ignore[arg-type]
            )
            page = context.new_page()
            said: list[str] = []
            page.on("console", lambda m, said=said: m.type == "error" and said.append(m.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.goto(demo.dashboard)
            shoot(page, f"login-{width}-{scheme}")
            signed_in(page, demo)
            for name, address in addresses.items():
                picture = f"{name.replace(':', '-')}-{width}-{scheme}"
                page.goto(demo.dashboard.rstrip("/") + address)
                page.wait_for_load_state("networkidle")
                shoot(page, picture)
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    problems.append(f"{picture}: {wide} pixels wide")
                problems += [f"{picture}: {text}" for text in said]
                said.clear()
            context.close()
    return problems


def show(browser: Browser, demo: RunningDemo) -> None:
    """The overview once a job has held its IPUs idle for a minute, and the page of a job that
    waits, as README and docs show them."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    signed_in(page, demo)
    page.get_by_text("interactive-sample, for").wait_for(timeout=120_000)
    page.screenshot(path=OF_DOCS / "overview.png")
    page.locator(".fleet-queue a.fw-medium").first.click()
    page.locator(".diagnosis").wait_for()
    page.screenshot(path=OF_DOCS / "job.png", clip={"x": 0, "y": 0, "width": 1440, "height": 720})
    page.close()


def shoot(page: Page, name: str) -> None:
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)


if __name__ == "__main__":
    sys.exit(main())
