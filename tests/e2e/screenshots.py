"""`make screenshots`: every page, wide and narrow, light and dark, into build/screenshots.

Starts a demo of its own and takes its pages empty; then writes the sample history into it, lets
jobs run and wait, one of them with an odd name, and takes all pages in every width and scheme, as
print, and while each of its services is silent. Also reports for each page whether it is wider than
its window or made the browser complain. With `--fleet MACHINES` it takes only overview and fleet of
such a fleet, with `--docs` only the pictures of README and docs (docs/images), with `--only WORDS`
only the pages with one of these words in their names. Without `--fleet` the pictures of README and
docs are always made again.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.browsing import signed_in
from tests.e2e.demo_states import (
    OVERVIEW,
    PAGES,
    addresses_of,
    addresses_of_busy,
    addresses_of_past,
    prepare,
)
from tests.e2e.running_demo import ROOT, start_demo, stop_demo
from tests.fakes.chromium import end_browser, shared_browser
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

FOLDER = ROOT / "build" / "screenshots"
OF_DOCS = ROOT / "docs" / "images"
OTHERS_OF_DOCS = {
    "queue": ("/queue/", 640),
    "usage": ("/usage/?window=lastmonth", 900),
    "system": ("/system/", 640),
}
WIDTHS = (1440, 768, 390)
SCHEMES = ("light", "dark")
WIDE = ("overview", "jobs", "fleet", "usage", "system", "waiting-detail")
"""Pages that are also looked at on a large screen."""
SILENT_SECONDS = 45  # until each page and the header have noticed
PRINTED = (
    "overview",
    "fleet",
    "machine",
    "jobs",
    "usage",
    "reports",
    "statements",
    "statement",
    "job-detail",
)
SERVICES = {
    "apiserver": "run_devcluster",
    "proxy": "run_vipu_proxy",
    "vipu": "partitions.vipu.server.main",
    "postgres": "postgres",
}


def main() -> int:
    """Take all pictures; return how many pages have a problem."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--fleet", type=int, help="only overview and fleet of so many IPU-Machines")
    read.add_argument("--docs", action="store_true", help="only the pictures of README and docs")
    read.add_argument(
        "--only", default="", help="of a busy demo, pages with these words in their names"
    )
    given = read.parse_args()
    machines = given.fleet
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ipuhub-screenshots-") as folder:
        more = ("--fleet", str(machines)) if machines else ()
        demo = start_demo(Path(folder) / "demo", *more)
        try:
            with shared_browser() as browser:
                if given.docs:
                    problems = take_docs(browser, demo)
                elif given.only:
                    problems = take_some(browser, demo, given.only.split(","))
                elif machines:
                    problems = take_fleet(browser, demo, machines)
                else:
                    problems = take_all(browser, demo)
        finally:
            end_browser()
            stop_demo(demo)
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")
    for problem in problems:
        print("PROBLEM:", problem)
    return len(problems)


def take_all(browser: Browser, demo: RunningDemo) -> list[str]:
    """The pages empty, busy, printed and stale; return what is wrong."""
    empty = addresses_of(PAGES)
    problems = take(browser, demo, empty, "empty", widths=WIDTHS[::2], schemes=SCHEMES[:1])
    prepare(demo)
    show(browser, demo)
    addresses = empty | addresses_of_busy(demo)
    with watched(browser, WIDTHS[0], SCHEMES[0]) as (page, _):
        signed_in(page, demo)
        addresses |= addresses_of_past(page, demo)
    problems += take(browser, demo, addresses)
    wide = {name: addresses[name] for name in WIDE}
    problems += take(browser, demo, wide, widths=(1920,), schemes=SCHEMES[:1])
    print_pages(browser, demo, {name: addresses[name] for name in PRINTED})
    take_stale(browser, demo, addresses)
    return problems


def take_some(browser: Browser, demo: RunningDemo, words: list[str]) -> list[str]:
    """The pages with one of these words in their names, in every width and scheme."""
    prepare(demo)
    show(browser, demo)
    addresses = addresses_of(PAGES) | addresses_of_busy(demo)
    with watched(browser, WIDTHS[0], SCHEMES[0]) as (page, _):
        signed_in(page, demo)
        addresses |= addresses_of_past(page, demo)
    some = {name: at for name, at in addresses.items() if any(word in name for word in words)}
    return take(browser, demo, some)


def take_docs(browser: Browser, demo: RunningDemo) -> list[str]:
    """The pictures of README and docs alone."""
    prepare(demo)
    show(browser, demo)
    return []


def take_fleet(browser: Browser, demo: RunningDemo, machines: int) -> list[str]:
    """Overview and fleet of a large demo while its queue fills."""
    demo.wait_until_recording()
    total = machines * 4
    long = ("--shortest", "1800", "--longest", "3600")
    load = ("--kubeconfig", str(demo.kubeconfig), "--pause", "0.2", "--alive", "150", *long)
    with subprocess.Popen([sys.executable, "manage.py", "run_demo_load", *load], cwd=ROOT) as busy:
        try:
            wait_until(
                lambda: demo.kubectl("get", "ipujobs", "-A").count("Pending") > 12, "a queue"
            )
            return take(browser, demo, addresses_of(OVERVIEW), f"fleet-{total}")
        finally:
            busy.send_signal(signal.SIGINT)


def take(
    browser: Browser,
    demo: RunningDemo,
    addresses: dict[str, str],
    mark: str = "",
    *,
    widths: tuple[int, ...] = WIDTHS,
    schemes: tuple[str, ...] = SCHEMES,
) -> list[str]:
    """Visit every page in every width and scheme; return what is wrong."""
    problems: list[str] = []
    for width in widths:
        for scheme in schemes:
            with watched(browser, width, scheme) as (page, errors):
                page.goto(demo.dashboard)
                shoot(page, f"login-{width}-{scheme}")
                signed_in(page, demo)
                for name, address in addresses.items():
                    picture = "-".join(filter(None, (mark, name, str(width), scheme)))
                    page.goto(demo.dashboard.rstrip("/") + address)
                    page.wait_for_load_state("networkidle")
                    shoot(page, picture)
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    if wide > width:
                        problems.append(f"{picture}: {wide} pixels wide")
                    problems += [f"{picture}: {text}" for text in errors if "error-" not in name]
                    errors.clear()
    return problems


@contextmanager
def watched(browser: Browser, width: int, scheme: str) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what the browser complains of."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page, errors
    context.close()


def print_pages(browser: Browser, demo: RunningDemo, addresses: dict[str, str]) -> None:
    """Each page on A4, as a PDF."""
    with watched(browser, 1440, "light") as (page, _):
        signed_in(page, demo)
        for name, address in addresses.items():
            page.goto(demo.dashboard.rstrip("/") + address)
            page.wait_for_load_state("networkidle")
            page.pdf(path=FOLDER / f"print-{name}.pdf", format="A4", prefer_css_page_size=True)


def take_stale(browser: Browser, demo: RunningDemo, addresses: dict[str, str]) -> None:
    """The pages that say what is known while a service is silent; it goes in the middle of them."""
    names = ("overview", "fleet", "machine", "jobs", "usage", "system", "waiting-detail")
    for service, marker in SERVICES.items():
        with watched(browser, 1440, "light") as (page, _):
            signed_in(page, demo)
            pids = family(demo.pid_of(marker))
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                page.wait_for_timeout(SILENT_SECONDS * 1000)
                shoot(page, f"stale-{service}-open-page")
                for name in names:
                    # Never idle: each poll waits for the silent service.
                    page.goto(demo.dashboard.rstrip("/") + addresses[name])
                    # A page that cannot be made says so in place of all.
                    page.locator("#health.is-down, h1.empty-title").first.wait_for()
                    shoot(page, f"stale-{service}-{name}")
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)


def family(pid: int) -> list[int]:
    """A process and all that it started, as the sessions of PostgreSQL."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def show(browser: Browser, demo: RunningDemo) -> None:
    """The overview once a job has held its IPUs idle for a minute, and the page of a job that
    waits, as README and docs show them."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    signed_in(page, demo)
    page.get_by_text("interactive-sample, for").wait_for(timeout=120_000)
    page.locator("#health.is-up").wait_for()
    page.screenshot(path=OF_DOCS / "overview.png")
    page.locator(".fleet-queue a.fw-medium").first.click()
    page.locator(".diagnosis").wait_for()
    page.locator("#health.is-up").wait_for()
    page.screenshot(path=OF_DOCS / "job.png", clip={"x": 0, "y": 0, "width": 1440, "height": 720})
    for name, (path, height) in OTHERS_OF_DOCS.items():
        page.goto(demo.dashboard.rstrip("/") + path)
        page.wait_for_load_state("networkidle")
        page.screenshot(
            path=OF_DOCS / f"{name}.png",
            clip={"x": 0, "y": 0, "width": 1440, "height": height},
        )
    page.close()


def shoot(page: Page, name: str) -> None:
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)


if __name__ == "__main__":
    sys.exit(main())
