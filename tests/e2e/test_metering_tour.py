"""The tour continued: from a pod to the month's CSV, in a browser, by curl and after deletion."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
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

NAMESPACE, GROUP, JOB = "tour", "research", "tour-sample"
ADMIN = "kubernetes-admin"  # whom the demo's kubeconfig names
CPU_CORES, MEMORY_GIB, IPUS, SECONDS = 2, 4, 4, 20


def manifest() -> dict[str, Any]:
    """The README's sample, short, and with requests to account for."""
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / "single-gcd-sample.yaml").read_text())
    annotations = {"sim/runtime-seconds": str(SECONDS)}
    job["metadata"] = {"name": JOB, "namespace": NAMESPACE, "annotations": annotations}
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


def lifetime(demo: RunningDemo, pod: str) -> int:
    """Seconds from PodScheduled to the last container's end, as kubectl tells them."""
    text = demo.kubectl("get", "pod", pod, "-n", NAMESPACE, "-o", "json")
    status = json.loads(text)["status"]
    scheduled = next(c for c in status["conditions"] if c["type"] == "PodScheduled")
    ends = [c["state"]["terminated"]["finishedAt"] for c in status["containerStatuses"]]
    began = datetime.fromisoformat(scheduled["lastTransitionTime"])
    return int((datetime.fromisoformat(max(ends)) - began).total_seconds())


def has_ended(demo: RunningDemo, pod: str) -> bool:
    """Workers are ended by the operator, a moment after their job has Completed."""
    path = "jsonpath={.status.containerStatuses[*].state.terminated.finishedAt}"
    return bool(demo.kubectl("get", "pod", pod, "-n", NAMESPACE, "-o", path))


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


def test_from_kubectl_apply_to_the_months_csv(page: Page, demo: RunningDemo) -> None:
    month = datetime.now(UTC).strftime("%Y-%m")
    demo.kubectl("create", "namespace", NAMESPACE)
    demo.kubectl("label", "namespace", NAMESPACE, f"ipuhub.io/group={GROUP}")
    demo.kubectl("apply", "-f", "-", stdin=json.dumps(manifest()))
    running = page.locator("#live[data-say^='1 running'] .fleet-legend")
    running.get_by_role("link", name=JOB).first.wait_for(timeout=60_000)

    uid = shows_its_timeline(page, demo)
    page.locator("[data-state=Completed]").first.wait_for(timeout=90_000)
    wait_until(lambda: has_ended(demo, f"{JOB}-worker-0"), "the worker's end")
    worker, launcher = lifetime(demo, f"{JOB}-worker-0"), lifetime(demo, f"{JOB}-launcher")
    assert SECONDS <= launcher <= worker < SECONDS + 60

    shows_the_hours_of_the_group(page, worker)
    files = make_and_download(page, month)
    says_what_was_allocated(files, uid, worker, launcher)
    says_the_same_to_a_tool(page, demo, month, files)

    demo.kubectl("delete", "ipujob", JOB, "-n", NAMESPACE, "--timeout=120s")
    assert demo.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name") == ""
    page.goto(f"{demo.dashboard}/jobs/{uid}/")
    page.get_by_text("was deleted from the cluster").wait_for(timeout=60_000)
    assert page.get_by_role("heading", name=JOB).is_visible()
    assert page.locator("svg.timeline").count() == 1


def shows_its_timeline(page: Page, demo: RunningDemo) -> str:
    """Open the job's page from the overview: launcher and worker stand on its timeline."""
    page.get_by_role("link", name=JOB).first.click()
    page.get_by_role("heading", name=JOB).wait_for()
    labels = page.locator("svg.timeline .row-label")
    for pod in ("launcher", "worker-0"):
        labels.filter(has_text=pod).first.wait_for(timeout=60_000)
    uid = str(demo.job(JOB, NAMESPACE)["metadata"]["uid"])
    assert uid in page.url
    return uid


def shows_the_hours_of_the_group(page: Page, worker: int) -> None:
    page.get_by_role("link", name="Usage", exact=True).click()
    row = page.get_by_role("row").filter(has_text=GROUP).first
    row.wait_for()
    numbers = [float(text) for text in re.findall(r"\d+\.\d+", row.inner_text())]
    assert any(abs(number - hours(IPUS, worker)) < 0.006 for number in numbers), numbers


def make_and_download(page: Page, month: str) -> dict[str, str]:
    """Generate the month's report by its button and download both files."""
    page.get_by_role("link", name=re.compile("report", re.IGNORECASE)).first.click()
    page.get_by_role("button", name=re.compile("Generate", re.IGNORECASE)).first.click()
    row = page.get_by_role("row").filter(has_text=month).first
    row.get_by_role("link", name=re.compile("Summary", re.IGNORECASE)).first.wait_for(
        timeout=90_000
    )
    files = {}
    for kind in ("Summary", "Details"):
        with page.expect_download() as downloading:
            row.get_by_role("link", name=re.compile(kind, re.IGNORECASE)).first.click()
        files[kind.lower()] = downloading.value.path().read_text()
    return files


def says_what_was_allocated(files: dict[str, str], uid: str, worker: int, launcher: int) -> None:
    """4 IPUs x the worker's lifetime, CPU and memory of its requests; the partition apart."""
    found = [row for row in rows(files["details"]) if row["job_uid"] == uid]
    by_pod = {row["pod_name"]: row for row in found}
    assert set(by_pod) == {f"{JOB}-worker-0", f"{JOB}-launcher", ""}
    line = by_pod[f"{JOB}-worker-0"]
    assert (line["namespace"], line["group"], line["component"]) == (NAMESPACE, GROUP, "ipujob")
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

    summary = [row for row in rows(files["summary"]) if row["namespace"] == NAMESPACE]
    job = next(row for row in summary if row["component"] == "ipujob")
    assert (job["group"], job["user"], job["user_verified"]) == (GROUP, ADMIN, "Y")
    assert job["pods"] == "2"
    assert float(job["ipu_hours"]) == hours(IPUS, worker)
    assert float(job["usage_hours"]) == hours(1, worker + launcher)
    # The launcher's own init container asks for a tenth of a core.
    for name in ("cpu_core_hours", "gb_memory_hours"):
        both = sum(float(by_pod[f"{JOB}-{pod}"][name]) for pod in ("worker-0", "launcher"))
        assert abs(float(job[name]) - both) < 2e-5


def says_the_same_to_a_tool(
    page: Page, demo: RunningDemo, month: str, files: dict[str, str]
) -> None:
    """The same files by curl with a token, and their numbers in the primehub profile."""
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
    group = next(one for one in sums["results"] if one["key"] == {"group": GROUP})
    job = next(
        row
        for row in rows(files["summary"])
        if row["namespace"] == NAMESPACE and row["component"] == "ipujob"
    )
    assert float(group["ipu_hours"]) == float(job["ipu_hours"])
