"""The states of a demo that are worth a look, and the addresses of their pages by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.running_demo import ROOT
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.e2e.running_demo import RunningDemo

BUSY = Path(__file__).with_name("busy-fleet.yaml")
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
ERRORS = {"error-404": "/jobs/no-such-job/", "error-400": "/jobs/?no-such-filter=1"}
ODD_USER = '<b onclick="alert(1)">Zoë</b> von der Weiden-Ölçer@a-rather-long-institute.example.org'
ODD_JOB = "wav2vec-finetune-on-all-the-languages-of-the-world-take-2"


def prepare(demo: RunningDemo) -> None:
    """Fill the demo."""
    demo.wait_until_recording()
    demo.manage("make_demo_history", "--dir", str(demo.directory))
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=held")
    wait_until(lambda: demo.status("needs-16-behind") == "Running", "the large job Running")
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=failed")
    wait_until(lambda: demo.status("crashes", "vision") == "Failed", "a job that failed")
    demo.kubectl("apply", "-f", str(BUSY), "-l", "app=waiting")


def addresses_of_busy(demo: RunningDemo) -> dict[str, str]:
    """Submit the odd job; return the addresses of the pages of jobs and of a month by name."""
    submit_odd(demo)
    found = {}
    jobs = {
        "job": demo.job("needs-16-behind"),
        "waiting": demo.job("gpt2-large"),
        "odd": demo.job(ODD_JOB),
        "failed": demo.job("crashes", "vision"),
    }
    for mark, job in jobs.items():
        uid = job["metadata"]["uid"]
        found |= {f"{mark}-{page}": f"/jobs/{uid}/{page}/" for page in OF_A_JOB}
        found[f"{mark}-detail"] = f"/jobs/{uid}/"
    found |= addresses_of_machine(demo) | ERRORS
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


def addresses_of_past(page: Page, demo: RunningDemo) -> dict[str, str]:
    """The page of a job that was deleted while it ran, and of one that failed before."""
    found = {}
    for mark, status in (("deleted", "Deleted"), ("failed-before", "Failed")):
        page.goto(f"{demo.dashboard.rstrip('/')}/jobs/?status={status}&namespace=sample-language")
        link = page.locator("tbody a.fw-medium").first.get_attribute("href")
        assert link, f"there is no job with the status {status}"
        found[f"{mark}-detail"] = link
    return found
