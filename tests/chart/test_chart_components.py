"""The chart's trial installation on the embedded API, with each container's own command.

Needs helm, root and PostgreSQL's programs, no cluster and no images: see localpods.py.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import psycopg
import pytest
import yaml

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from tests.builders.documents import read_documents
from tests.chart.localpods import LocalPods, forwarded
from tests.chart.scraping import broken_rules, numbers, scraping, until_shown
from tests.devcluster.conformance import servers
from tests.devcluster.conformance.kubectl import Kubectl
from tests.fakes.waiting import PATIENCE_SECONDS, eventually
from tests.realnodes.release import CHART, COMPONENTS, ROOT, Helm
from tests.unit.chart.test_monitoring import queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.chart.localpods import LocalPod

NAMESPACE = "ipus"
NAME = "gc-ipu-operator"
TRIAL = ("-f", f"{CHART}/trial-values.yaml")
# What is right to be empty while nothing is wrong.
IDLE_PANELS = ("Checks that fail A",)
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.fixture
def embedded() -> Iterator[servers.Server]:
    with servers.start("embedded") as server:
        yield server


@pytest.fixture
def kubectl(embedded: servers.Server, tmp_path: Path) -> Kubectl:
    return Kubectl(embedded.kubeconfig, tmp_path)


@pytest.fixture
async def pods(
    embedded: servers.Server, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[LocalPods]:
    """The release `gc` with the values for a trial; none of its pods has been started."""
    helm = Helm(embedded, NAMESPACE)
    helm.run("install", "gc", CHART, "--create-namespace", *TRIAL)
    services = kubectl.json("get", "services", "-n", NAMESPACE)["items"]
    async with KubeClient(load_config(str(embedded.kubeconfig))) as client:
        pods = LocalPods(client, tmp_path / "pods", NAMESPACE, services)
        yield pods
        await pods.close()


async def test_every_component_becomes_ready_and_a_job_is_run_counted_and_measured(
    embedded: servers.Server, kubectl: Kubectl, pods: LocalPods, tmp_path: Path
) -> None:
    workloads = kubectl.json("get", "deployments,statefulsets", "-n", NAMESPACE)["items"]
    for each in workloads:
        await pods.start(f"{each['metadata']['name']}-0", each["spec"]["template"])
    started = {component_of(pod): pod for pod in pods.pods}
    assert set(started) == COMPONENTS
    for component, pod in started.items():
        await becomes_ready(component, pod)

    async with scraping(pods, kubectl, tmp_path) as prometheus:
        await until_shown(prometheus, "up == 1")
        job = yaml.safe_load((ROOT / "examples/trial.yaml").read_text("utf-8"))
        uid = await created(kubectl, job)
        await eventually(lambda: status(kubectl), lambda phase: phase == "Running")
        await eventually(
            lambda: rows(kubectl, started["database"], uid), lambda found: found == ("Running", 3)
        )
        # A rate is of what happens after the first scrape of a series.
        await until_shown(prometheus, "ipuhub_partition_reserve_duration_seconds_count")
        for name, replicas in (("again", "2"), ("waits", "32")):  # of 32 IPUs
            job["metadata"]["name"], job["spec"]["modelReplicas"] = name, replicas
            await created(kubectl, job)
        await review(kubectl, started["webhook"], job)
        await every_panel_shows_numbers(prometheus)
    await asyncio.to_thread(kubectl.run, "delete", "ipujob", "again", "waits", "-n", NAMESPACE)

    helm = Helm(embedded, NAMESPACE)
    code, output = await uninstalls(helm, kubectl, pods, 1)
    assert (code, f"{NAMESPACE}/trial" in output) == (1, True), output
    await asyncio.to_thread(kubectl.run, "delete", "ipujob", "trial", "-n", NAMESPACE)
    assert await uninstalls(helm, kubectl, pods, 2) == (0, "No IPUJob needs the operator.\n")

    for component, pod in started.items():
        assert pod.process.poll() is None, (component, pod.log_text()[-2000:])
        for wrong in ("is forbidden", "Traceback", "Read-only file system", "Permission denied"):
            assert wrong not in pod.log_text(), (component, pod.log_text()[-4000:])
        if component != "database":
            assert [line for line in pod.log_text().splitlines() if not is_json(line)] == [], (
                component
            )


async def test_two_probers_and_a_monitor_migrate_where_there_is_no_dashboard(
    embedded: servers.Server, kubectl: Kubectl, pods: LocalPods
) -> None:
    """They start beside the database; processes that need its tables are ready once the tables
    exist."""
    without = ("--set", "web.enabled=false", "--set", "prober.replicas=2")
    helm = Helm(embedded, NAMESPACE)
    await asyncio.to_thread(helm.run, "upgrade", "gc", CHART, *TRIAL, *without)
    found = await asyncio.to_thread(
        kubectl.json, "get", "deployments,statefulsets", "-n", NAMESPACE
    )
    templates = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]
        for each in found["items"]
    }
    assert templates["prober"]["replicas"] == 2
    for component in ("prober", "prober", "monitor", "worker", "beat", "database"):
        number = sum(component in pod.manifest["metadata"]["name"] for pod in pods.pods)
        name = f"{NAME}-{component}-{number}"
        await pods.start(name, templates[component]["template"])
    for pod in pods.pods:
        await becomes_ready(component_of(pod), pod, seconds=240)  # all tables, one by one
    migrating = [pod for pod in pods.pods if component_of(pod) in {"prober", "monitor"}]

    def migrations() -> int:
        return "".join(pod.log_text() for pod in migrating).count("the database is migrated")

    await eventually(migrations)
    assert migrations() == 1
    assert not any("Traceback" in pod.log_text() for pod in migrating)


def is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return False


async def every_panel_shows_numbers(prometheus: str) -> None:
    """Each query of the dashboard, and each alert, is about what the components really measure."""
    found = queries()
    for title in IDLE_PANELS:
        await numbers(prometheus, found.pop(title))
    readings = (until_shown(prometheus, query) for query in found.values())
    missing = await asyncio.gather(*readings, return_exceptions=True)
    assert [str(each) for each in missing if each] == []
    # A scrape on a busy machine may take longer than Prometheus waits.
    await eventually(lambda: numbers(prometheus, "up == 0"), lambda found: found == [])
    await eventually(lambda: broken_rules(prometheus), lambda found: found == {})


async def becomes_ready(component: str, pod: LocalPod, seconds: float = PATIENCE_SECONDS) -> None:
    """Return once the pod passes all of its own probes."""
    probes = [pod.container[name] for name in PROBES]

    async def is_ready() -> bool:
        assert pod.process.poll() is None, (component, pod.log_text()[-2000:])
        return all([await pod.passes(probe) for probe in probes])

    try:
        await eventually(is_ready, seconds=seconds)
    except AssertionError as error:
        raise AssertionError(f"{component}: {error}\n{pod.log_text()[-4000:]}") from None


async def uninstalls(helm: Helm, kubectl: Kubectl, pods: LocalPods, number: int) -> tuple[int, str]:
    """Run the Job that Helm runs before an uninstallation; its exit code, and what it says."""
    rendered = await asyncio.to_thread(helm.run, "get", "hooks", "gc")
    hooks = [
        each
        for each in read_documents(rendered.stdout)
        if each["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    ]
    (job,) = (each for each in hooks if each["kind"] == "Job")
    rights = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [each for each in hooks if each is not job]}
    )
    await asyncio.to_thread(kubectl.run, "apply", "-f", "-", stdin=rights)
    pod = await pods.start(f"{job['metadata']['name']}-{number}", job["spec"]["template"])
    return await asyncio.to_thread(pod.process.wait, 90), pod.log_text()


async def rows(kubectl: Kubectl, database: LocalPod, uid: str) -> tuple[str, int] | None:
    """The job's status in the release's database, and of how many pods the usage is counted."""
    secret = kubectl.json("get", "secret", f"{NAME}-database", "-n", NAMESPACE)

    def ask(port: int) -> tuple[str, int] | None:
        from base64 import b64decode

        address = b64decode(secret["data"]["url"]).decode()
        where = f"@{NAME}-database.{NAMESPACE}.svc:5432/"
        assert where in address
        with psycopg.connect(address.replace(where, f"@127.0.0.1:{port}/")) as connection:
            jobs = "select status from jobs_jobrecord where uid = %s"
            found = connection.execute(jobs, [uid]).fetchone()
            counted = "select count(*) from usage_podlifetime where job_uid = %s"
            number = connection.execute(counted, [uid]).fetchone()
        return (found[0], number[0]) if found and number else None

    async with forwarded(lambda: database.network.connect(5432)) as port:
        return await asyncio.to_thread(ask, port)


async def review(kubectl: Kubectl, webhook: LocalPod, job: dict[str, Any]) -> None:
    """Have the webhooks review a job as an API server does: they are not asked about jobs of the
    release's own namespace."""
    kind = ("get", "validatingwebhookconfiguration", NAME)
    found = await asyncio.to_thread(kubectl.json, *kind)
    service = found["webhooks"][0]["clientConfig"]["service"]
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "operation": "CREATE", "namespace": "ml", "object": job},
    }
    async with (
        forwarded(lambda: webhook.network.connect(webhook.port("https"))) as here,
        aiohttp.ClientSession() as http,
        http.post(f"https://127.0.0.1:{here}{service['path']}", json=body, ssl=False) as answer,
    ):
        assert (await answer.json())["response"]["uid"] == "1"


async def created(kubectl: Kubectl, job: dict[str, Any]) -> str:
    """Create a job as a user does; its UID."""
    command = ("create", "-n", NAMESPACE, "-f", "-")
    made = await asyncio.to_thread(kubectl.json, *command, stdin=job)
    return str(made["metadata"]["uid"])


async def status(kubectl: Kubectl) -> Any:
    """Not in the event loop, which leads from pod to pod."""
    job = await asyncio.to_thread(kubectl.json, "get", "ipujob", "trial", "-n", NAMESPACE)
    return (job.get("status") or {}).get("launcherStatus")


def component_of(pod: LocalPod) -> str:
    return str(pod.manifest["metadata"]["labels"]["app.kubernetes.io/component"])
