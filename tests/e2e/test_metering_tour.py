"""The tour continued: from a pod to the month's CSV, in a browser, by curl and after deletion."""

from __future__ import annotations

import csv
import io
import json
import re
import secrets
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.browsing import signed_in
from tests.e2e.running_demo import EXAMPLES
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo

JOB = "tour-sample"
ADMIN = "kubernetes-admin"  # whom the demo's kubeconfig names
CPU_CORES, MEMORY_GIB, IPUS = 2, 4, 4


@dataclass(frozen=True)
class Tour:
    """A tour's own namespace and group, as what is metered stays."""

    demo: RunningDemo
    namespace: str
    group: str

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.demo.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def status(self, pod: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.kubectl("get", "pod", pod, "-o", "json"))["status"]
        return status


@pytest.fixture
def tour(demo: RunningDemo) -> Iterator[Tour]:
    name = f"tour-{secrets.token_hex(3)}"
    yield Tour(demo, name, f"group-of-{name}")
    demo.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")


def manifest() -> dict[str, Any]:
    """The README's sample, without an end, and with requests to account for."""
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / "single-gcd-sample.yaml").read_text())
    job["metadata"] = {"name": JOB, "annotations": {"sim/runtime-seconds": ""}}
    requests = {"cpu": str(CPU_CORES), "memory": f"{MEMORY_GIB}Gi"}
    container = job["spec"]["workers"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": requests}
    return job


@pytest.fixture
def page(browser: Browser, demo: RunningDemo) -> Iterator[Page]:
    demo.wait_until_recording()
    context = browser.new_context(accept_downloads=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    signed_in(page, demo)
    yield page
    context.close()
    assert problems == []


def end_launcher(tour: Tour) -> None:
    """Let it end a second from now, however long it took until all saw it run."""
    (container,) = tour.status(f"{JOB}-launcher")["containerStatuses"]
    began = datetime.fromisoformat(container["state"]["running"]["startedAt"])
    seconds = (datetime.now(UTC) - began).total_seconds() + 1
    annotation = f"sim/runtime-seconds={seconds:.0f}"
    tour.kubectl("annotate", "pod", f"{JOB}-launcher", annotation, "--overwrite")


def lifetime(tour: Tour, pod: str) -> int:
    """Seconds from PodScheduled to the last container's end, as kubectl tells them."""
    status = tour.status(pod)
    scheduled = next(c for c in status["conditions"] if c["type"] == "PodScheduled")
    ends = [c["state"]["terminated"]["finishedAt"] for c in status["containerStatuses"]]
    began = datetime.fromisoformat(scheduled["lastTransitionTime"])
    return int((datetime.fromisoformat(max(ends)) - began).total_seconds())


def has_ended(tour: Tour, pod: str) -> bool:
    """Workers are ended by the operator, a moment after their job has Completed."""
    path = "jsonpath={.status.containerStatuses[*].state.terminated.finishedAt}"
    return bool(tour.kubectl("get", "pod", pod, "-o", path))


def curl(demo: RunningDemo, path: str, token: str) -> str:
    done = subprocess.run(
        ["curl", "-sSf", "-H", f"Authorization: Bearer {token}", demo.dashboard + path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def hours(amount: float, seconds: int) -> float:
    return round(amount * seconds / 3600, 5)


def test_from_kubectl_apply_to_the_months_csv(page: Page, demo: RunningDemo, tour: Tour) -> None:
    month = datetime.now(UTC).strftime("%Y-%m")
    demo.kubectl("create", "namespace", tour.namespace)
    demo.kubectl("label", "namespace", tour.namespace, f"ipuhub.io/group={tour.group}")
    tour.kubectl("apply", "-f", "-", stdin=json.dumps(manifest()))
    running = page.locator("#live[data-say^='1 running'] .fleet-legend")
    running.get_by_role("link", name=JOB).first.wait_for()

    uid = shows_its_timeline(page, tour)
    end_launcher(tour)
    page.locator("[data-state=Completed]").first.wait_for()
    wait_until(lambda: has_ended(tour, f"{JOB}-worker-0"), "the worker's end")
    worker, launcher = lifetime(tour, f"{JOB}-worker-0"), lifetime(tour, f"{JOB}-launcher")
    assert launcher <= worker < launcher + 60

    shows_the_hours_of_the_group(page, tour, worker)
    files = make_and_download(page, month)
    says_what_was_allocated(tour, files, Lived(uid, worker, launcher))
    says_the_same_to_a_tool(page, tour, month, files)

    tour.kubectl("delete", "ipujob", JOB, "--timeout=120s")
    assert tour.kubectl("get", "pods", "-o", "name") == ""
    page.goto(f"{demo.dashboard}/jobs/{uid}/")
    page.get_by_text("was deleted from the cluster").wait_for()
    assert page.get_by_role("heading", name=JOB).is_visible()
    assert page.locator("svg.timeline").count() == 1


def shows_its_timeline(page: Page, tour: Tour) -> str:
    """Open the job's page from the overview: launcher and worker stand on its timeline."""
    page.get_by_role("link", name=JOB).first.click()
    page.get_by_role("heading", name=JOB).wait_for()
    labels = page.locator("svg.timeline .row-label")
    for pod in ("launcher", "worker-0"):
        labels.filter(has_text=pod).first.wait_for()
    uid = str(tour.demo.job(JOB, tour.namespace)["metadata"]["uid"])
    assert uid in page.url
    return uid


def shows_the_hours_of_the_group(page: Page, tour: Tour, worker: int) -> None:
    page.get_by_role("link", name="Usage", exact=True).click()
    row = page.get_by_role("row").filter(has_text=tour.group).first
    row.wait_for()
    numbers = [float(text) for text in re.findall(r"\d+\.\d+", row.inner_text())]
    assert any(abs(number - hours(IPUS, worker)) < 0.006 for number in numbers), numbers


def make_and_download(page: Page, month: str) -> dict[str, str]:
    """Generate the month's report by its button and download both files."""
    page.get_by_role("link", name=re.compile("report", re.IGNORECASE)).first.click()
    page.get_by_role("button", name=re.compile("Generate", re.IGNORECASE)).first.click()
    row = page.get_by_role("row").filter(has_text=month).first
    row.get_by_role("link", name=re.compile("Summary", re.IGNORECASE)).first.wait_for()
    files = {}
    for kind in ("Summary", "Details"):
        with page.expect_download() as downloading:
            row.get_by_role("link", name=re.compile(kind, re.IGNORECASE)).first.click()
        files[kind.lower()] = downloading.value.path().read_text()
    return files


@dataclass(frozen=True)
class Lived:
    """A job's UID, and the seconds of its pods."""

    uid: str
    worker: int
    launcher: int


def says_what_was_allocated(tour: Tour, files: dict[str, str], job: Lived) -> None:
    """4 IPUs x the worker's lifetime, CPU and memory of its requests; the partition apart."""
    worker, launcher = job.worker, job.launcher
    found = [row for row in rows(files["details"]) if row["job_uid"] == job.uid]
    by_pod = {row["pod_name"]: row for row in found}
    assert set(by_pod) == {f"{JOB}-worker-0", f"{JOB}-launcher", ""}
    line = by_pod[f"{JOB}-worker-0"]
    assert (line["namespace"], line["group"], line["component"]) == (
        tour.namespace,
        tour.group,
        "ipujob",
    )
    assert (line["user"], line["user_verified"]) == (ADMIN, "Y")
    assert line["component_name"] == JOB
    assert int(line["seconds"]) == worker
    assert float(line["ipu_hours"]) == hours(IPUS, worker)
    assert float(line["cpu_core_hours"]) == hours(CPU_CORES, worker)
    assert float(line["gb_memory_hours"]) == hours(MEMORY_GIB, worker)
    assert (line["partition_ipu_hours"], line["estimated"]) == ("0.00000", "N")
    assert float(by_pod[f"{JOB}-launcher"]["ipu_hours"]) == 0
    assert float(by_pod[f"{JOB}-launcher"]["usage_hours"]) == hours(1, launcher)
    partition = by_pod[""]
    assert (partition["component"], float(partition["ipu_hours"])) == ("partition", 0)
    assert (partition["user"], partition["user_verified"]) == (ADMIN, "Y")
    assert float(partition["partition_ipu_hours"]) >= hours(IPUS, worker) - 0.01

    summary = [row for row in rows(files["summary"]) if row["namespace"] == tour.namespace]
    line = next(row for row in summary if row["component"] == "ipujob")
    assert (line["group"], line["user"], line["user_verified"]) == (tour.group, ADMIN, "Y")
    assert line["pods"] == "2"
    assert float(line["ipu_hours"]) == hours(IPUS, worker)
    assert float(line["usage_hours"]) == hours(1, worker + launcher)
    # The launcher's own init container asks for a tenth of a core.
    for name in ("cpu_core_hours", "gb_memory_hours"):
        both = sum(float(by_pod[f"{JOB}-{pod}"][name]) for pod in ("worker-0", "launcher"))
        assert abs(float(line[name]) - both) < 2e-5


def says_the_same_to_a_tool(page: Page, tour: Tour, month: str, files: dict[str, str]) -> None:
    """The same files by curl with a token, and their numbers in the primehub profile."""
    demo = tour.demo
    page.goto(f"{demo.dashboard}/account/tokens/")
    page.get_by_label("Purpose").fill("tour")
    page.get_by_role("button", name="Create token").click()
    token = page.get_by_label("The new token").input_value()
    year, number = month.split("-")
    for kind in ("summary", "details"):
        path = f"/api/v1/usage/reports/{month}/{kind}.csv"
        assert curl(demo, path, token) == files[kind]
    old = rows(curl(demo, f"/report/monthly/details/{year}/{int(number)}", token))
    new = {row["k8s_uid"]: row for row in rows(files["details"])}
    assert old
    for row in old:
        for name in ("cpu_core_hours", "gb_memory_hours", "usage_hours", "group", "pod_name"):
            assert row[name] == new[row["k8s_uid"]][name]
    assert f"{year}/{int(number)}" in json.loads(curl(demo, "/report/monthly", token))
    sums = json.loads(curl(demo, f"/api/v1/usage/summary?month={month}&by=group", token))
    group = next(one for one in sums["results"] if one["key"] == {"group": tour.group})
    job = next(
        row
        for row in rows(files["summary"])
        if row["namespace"] == tour.namespace and row["component"] == "ipujob"
    )
    assert float(group["ipu_hours"]) == float(job["ipu_hours"])
