"""`make screenshots`: every page, wide and narrow, light and dark, into build/screenshots.

Starts a demo of its own and takes its pages empty; then writes the sample history into it, lets
jobs run and wait, one of them with an odd name, and takes all pages in every width and scheme, as
print, and while each of its services is silent. Also reports for each page whether it is wider than
its window or made the browser complain. With `--fleet MACHINES` it takes only overview and fleet of
such a fleet, with `--docs` only the pictures of README and docs (docs/images). Without `--fleet`
those pictures are always made again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.browsing import signed_in
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
BUSY = Path(__file__).with_name("busy-fleet.yaml")
WIDTHS = (1440, 768, 390)
SCHEMES = ("light", "dark")
SILENT_SECONDS = 45  # until each page and the header have noticed
OF_A_JOB = ("detail", "logs", "pods", "events", "usage", "yaml")
OVERVIEW = {"overview": ("overview", {}), "fleet": ("fleet", {}), "queue": ("queue", {})}
PAGES: dict[str, tuple[str, dict[str, str]]] = {
    **OVERVIEW,
    "fleet-state": ("fleet", {"fill": "state"}),
    "jobs": ("jobs:list", {}),
    "jobs-failed": ("jobs:list", {"status": "Failed"}),
    "jobs-none": ("jobs:list", {"name": "nobody-has-this-name"}),
    "jobs-create": ("jobs:create", {}),
    "partitions": ("partitions:list", {}),
    "partitions-stats": ("partitions:stats", {}),
    "partitions-query": ("partitions:query", {"size": "16"}),
    "usage": ("usage:month", {}),
    "usage-users": ("usage:month", {"by": "user", "group": "vision", "window": "30d"}),
    "usage-jobs": ("usage:month", {"by": "job", "window": "lastmonth"}),
    "usage-pods": ("usage:lifetimes", {}),
    "usage-gaps": ("usage:gaps", {}),
    "usage-faults": ("usage:faults", {}),
    "utilization": ("utilization", {}),
    "reports": ("usage:reports", {}),
    "rates": ("usage:rates", {}),
    "search": ("search", {"q": "gpt"}),
    "search-none": ("search", {"q": "nobody-has-this-name"}),
    "system": ("system", {}),
    "tokens": ("account-tokens", {}),
    "password": ("account-password", {}),
    "notifications": ("account-notifications", {}),
    "users": ("account-users", {}),
    "roles": ("role-changes", {}),
    "audit": ("audit", {}),
    "help": ("help", {}),
    "api": ("api-reference", {}),
}
OF_A_MONTH = {"statements": "groups/", "statement": "statement/?group=language", "review": "close/"}
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
ODD_USER = '<b onclick="alert(1)">Zoë</b> von der Weiden-Ölçer@a-rather-long-institute.example.org'
ODD_JOB = "wav2vec-finetune-on-all-the-languages-of-the-world-take-2"
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
    problems += take(browser, demo, addresses)
    print_pages(browser, demo, {name: addresses[name] for name in PRINTED})
    take_stale(browser, demo, addresses)
    return problems


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


def prepare(demo: RunningDemo) -> None:
    """Fill the demo."""
    demo.wait_until_recording()
    demo.manage("make_demo_history", "--dir", str(demo.directory))
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=held")
    wait_until(lambda: demo.status("needs-16-behind") == "Running", "the large job Running")
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=waiting")


def addresses_of_busy(demo: RunningDemo) -> dict[str, str]:
    """Submit the odd job; return the addresses of the pages of jobs and of a month by name."""
    submit_odd(demo)
    found = {}
    for mark, name in (("job", "needs-16-behind"), ("waiting", "gpt2-large"), ("odd", ODD_JOB)):
        uid = demo.job(name)["metadata"]["uid"]
        found |= {f"{mark}-{page}": f"/jobs/{uid}/{page}/" for page in OF_A_JOB}
        found[f"{mark}-detail"] = f"/jobs/{uid}/"
    found |= addresses_of_machine(demo)
    month = f"{datetime.now(UTC).replace(day=1) - timedelta(days=1):%Y-%m}"
    of_month = {name: f"/usage/reports/{month}/{page}" for name, page in OF_A_MONTH.items()}
    return found | of_month


def addresses_of_machine(demo: RunningDemo) -> dict[str, str]:
    """The page of the first IPU-Machine, and the page of one of its IPUs."""
    account = ("ipuhub-operator", "-n", "ipuhub-system", "--audience=ipuhub-proxy")
    token = demo.kubectl("create", "token", *account).strip()
    fleet = json.loads(demo.http("/v1/fleet", Authorization=f"Bearer {token}")[1])
    controller = fleet["controllers"][0]
    address = f"/fleet/machines/{controller['address']}/{controller['machines'][0]['agent']}/"
    return {"machine": address, "ipu": f"{address}ipus/0/"}


def submit_odd(demo: RunningDemo) -> None:
    """A job whose name is as long as it may be, of a user whose name is hostile."""
    binding = ("create", "clusterrolebinding", "odd", "--clusterrole=cluster-admin")
    demo.kubectl(*binding, f"--user={ODD_USER}")
    job = json.loads(demo.kubectl("get", "ipujob", "yolo-8", "-n", "vision", "-o", "json"))
    manifest = {key: job[key] for key in ("apiVersion", "kind", "spec")}
    manifest["metadata"] = {"name": ODD_JOB}
    demo.kubectl("apply", f"--as={ODD_USER}", "-f", "-", stdin=json.dumps(manifest))


def addresses_of(pages: dict[str, tuple[str, dict[str, str]]]) -> dict[str, str]:
    """Path and query of each page."""
    code = (
        "import json, sys, django; django.setup(); from django.urls import reverse; "
        "from urllib.parse import urlencode; pages = json.loads(sys.argv[1]); "
        "print(json.dumps({n: reverse(p) + '?' + urlencode(q) for n, (p, q) in pages.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(pages)],
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
                    problems += [f"{picture}: {text}" for text in errors]
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
