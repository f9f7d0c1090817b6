"""A first burst of jobs through the operator's own process, beside the floor program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ipuhub.demo.cluster import ACCESS_FILE, CRD_FILE, apply_file
from ipuhub.demo.ports import choose_port
from ipuhub.demo.supervisor import Process, Supervisor
from ipuhub.devcluster.server import DevCluster
from ipuhub.kube import resources
from ipuhub.kube.cache import Informer
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from jobs.resources import IPUJOBS
from tests.bench.demo_figures import proportional_set_sizes, spread
from tests.bench.floor import write_job
from tests.e2e.running_demo import EXAMPLES, ROOT

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

_CONCURRENCY = 16
_LABEL = "vipu-ctrl=vctl1"


@dataclass
class Times:
    """When what was first seen, per job, on the monotonic clock."""

    submitted: dict[str, float] = field(default_factory=dict)
    pods: dict[str, set[str]] = field(default_factory=dict)
    pods_at: dict[str, float] = field(default_factory=dict)
    running_at: dict[str, float] = field(default_factory=dict)


async def run(options: argparse.Namespace) -> None:
    """Print operator and floor figures of `rounds` alternating rounds."""
    launcher = not options.without_launcher
    ours, floors = [], []
    async with (
        cluster(options.kubeconfig) as kubeconfig,
        KubeClient(load_config(str(kubeconfig)), max_connections=_CONCURRENCY) as client,
    ):
        for path in (CRD_FILE, ACCESS_FILE):
            await apply_file(client, path)
        for number in range(options.rounds):
            name = f"burst-{os.getpid()}-{number}"
            ours.append(await operator_round(client, kubeconfig, name, options.jobs, launcher))
            floors.append(await floor_round(client, f"{name}-floor", options.jobs, launcher))
    report(options.jobs, launcher, ours, floors)


def report(jobs: int, launcher: bool, ours: list[dict[str, float]], floors: list[float]) -> None:
    """Print medians, ranges, and the ratio of operator to floor."""
    print(
        f"{jobs} jobs, 1 worker, {'with' if launcher else 'without'} launcher; {len(ours)} rounds"
    )
    for key in ours[0]:
        print(f"  {key:<46} {spread([one[key] for one in ours])}")
    rates = [jobs / seconds for seconds in floors]
    print(f"  {'floor program, jobs/s':<46} {spread(rates)}")
    ratio = statistics.median(
        one["jobs/s, first submit to all pods"] / rate
        for one, rate in zip(ours, rates, strict=True)
    )
    print(f"  {'operator / floor (paired median)':<46} {ratio:.2f}")


@contextlib.asynccontextmanager
async def cluster(kubeconfig: Path | None) -> AsyncIterator[Path]:
    """Yield the given cluster's kubeconfig, or that of an embedded one with stand-in nodes."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    with tempfile.TemporaryDirectory() as folder:
        server = DevCluster(Path(folder))
        await server.start()
        supervisor = Supervisor(output=_quiet)
        command = [sys.executable, str(ROOT / "manage.py"), "run_kubelet", "--nodes", "20"]
        environment = {"KUBECONFIG": str(server.kubeconfig)}
        supervisor.start(Process("kubelet", [*command, "--label", _LABEL], environment))
        try:
            yield server.kubeconfig
        finally:
            await supervisor.stop()
            await server.stop()


async def operator_round(
    client: KubeClient, kubeconfig: Path, namespace: str, jobs: int, launcher: bool
) -> dict[str, float]:
    """Submit `jobs` to a running operator; return seconds and rates."""
    await make_namespace(client, namespace)
    times = Times()
    wanted = 2 if launcher else 1

    def on_pod(_old: Any, new: Any) -> None:
        name = ((new or {}).get("metadata") or {}).get("labels", {}).get("graphcore.ai/ipujob-name")
        if name is None:
            return
        seen = times.pods.setdefault(name, set())
        seen.add(new["metadata"]["name"])
        if len(seen) >= wanted:
            times.pods_at.setdefault(name, time.monotonic())

    def on_job(_old: Any, new: Any) -> None:
        if new and (new.get("status") or {}).get("launcherStatus") == "Running":
            times.running_at.setdefault(new["metadata"]["name"], time.monotonic())

    pods = Informer(client, resources.PODS, namespace=namespace)
    pods.add_handler(on_pod)
    watched = Informer(client, IPUJOBS, namespace=namespace)
    watched.add_handler(on_job)
    watches = [asyncio.create_task(one.run()) for one in (pods, watched)]
    await asyncio.gather(pods.wait_synced(30), watched.wait_synced(30))
    async with processes(kubeconfig, machines=max(8, jobs)) as supervisor:
        began = time.monotonic()
        await submit(client, namespace, jobs, launcher, times)
        last = max(times.submitted.values())
        await until(lambda: len(times.pods_at) == jobs, 300)
        await until(lambda: len(times.running_at) == jobs, 300)
        pid = supervisor.pid("operator") or 0
        cpu, memory = cpu_seconds(pid), sum(proportional_set_sizes(pid).values())
        await delete_jobs(client, namespace)
    for task in watches:
        task.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    waits = sorted(times.pods_at[name] - times.submitted[name] for name in times.submitted)
    return {
        "last submit -> all pods created, s": max(times.pods_at.values()) - last,
        "last submit -> all Running, s": max(times.running_at.values()) - last,
        "submit -> pods created, p50, s": waits[len(waits) // 2],
        "submit -> pods created, p99, s": waits[int(len(waits) * 0.99) - 1],
        "jobs/s, first submit to all pods": jobs / (max(times.pods_at.values()) - began),
        "operator CPU a job to Running, ms": 1000 * cpu / jobs,
        "operator PSS, MiB": memory / 2**20,
    }


async def floor_round(client: KubeClient, namespace: str, jobs: int, launcher: bool) -> float:
    """Issue the same writes with no logic; return the seconds they took."""
    await make_namespace(client, namespace)
    limit = asyncio.Semaphore(_CONCURRENCY)

    async def one(number: int) -> None:
        name = f"job-{number}"
        async with limit:
            await client.create(IPUJOBS, job_manifest(namespace, name, launcher))
            await write_job(client, namespace, name, launcher=launcher)

    began = time.monotonic()
    await asyncio.gather(*(one(number) for number in range(jobs)))
    seconds = time.monotonic() - began
    await delete_namespace(client, namespace)
    return seconds


@contextlib.asynccontextmanager
async def processes(kubeconfig: Path, machines: int) -> AsyncIterator[Supervisor]:
    """Run vipu-server, proxy and operator as processes."""
    supervisor = Supervisor(output=_quiet)
    taken: set[int] = set()
    vipu, proxy, health = (choose_port("bench", 28090, taken).number for _ in range(3))
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "PROXY_PORT": str(proxy),
        "IPUHUB_PROXY_URL": f"http://127.0.0.1:{proxy}",
        "IPUHUB_VIPU_CONTROLLERS": f"127.0.0.1:{vipu}:{_LABEL}",
        "IPUHUB_SERVICE_ACCOUNT": "ipuhub-system/ipuhub-operator",
        "IPUHUB_HEALTH_PORT": str(health),
    }
    manage = [sys.executable, str(ROOT / "manage.py")]
    with tempfile.TemporaryDirectory() as folder:
        server = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(vipu)]
        server += ["--storage", f"{folder}/vipu.json", "--machines", str(machines)]
        supervisor.start(Process("vipu", [*server, "--create-latency-seconds", "0.2"]))
        supervisor.start(Process("proxy", [*manage, "run_vipu_proxy"], environment))
        from ipuhub.demo.processes import answers

        supervisor.start(
            Process(
                "operator",
                [*manage, "run_operator"],
                environment,
                is_ready=lambda: answers(f"http://127.0.0.1:{health}/readyz"),
            )
        )
        try:
            await supervisor.wait_ready("operator")
            yield supervisor
        finally:
            await supervisor.stop()


async def submit(
    client: KubeClient, namespace: str, jobs: int, launcher: bool, times: Times
) -> None:
    """Create the jobs, 16 at a time."""
    limit = asyncio.Semaphore(_CONCURRENCY)

    async def one(number: int) -> None:
        name = f"job-{number}"
        async with limit:
            await client.create(IPUJOBS, job_manifest(namespace, name, launcher))
            times.submitted[name] = time.monotonic()

    await asyncio.gather(*(one(number) for number in range(jobs)))


def job_manifest(namespace: str, name: str, launcher: bool) -> dict[str, Any]:
    """Return the first example's job, without its launcher where none is wanted."""
    text = (EXAMPLES / "single-gcd-sample.yaml").read_text(encoding="utf-8")
    manifest: dict[str, Any] = yaml.safe_load(text)
    manifest["metadata"] = {"name": name, "namespace": namespace}
    if not launcher:
        del manifest["spec"]["launcher"]
        container = manifest["spec"]["workers"]["template"]["spec"]["containers"][0]
        container["command"] = ["python3", "serve.py"]
    return manifest


async def make_namespace(client: KubeClient, name: str) -> None:
    """Create a namespace and wait until pods can be created in it."""
    await client.create(resources.NAMESPACES, {"metadata": {"name": name}})

    async def has_account() -> bool:
        accounts = await client.list(resources.SERVICE_ACCOUNTS, name)
        return bool(accounts.items)

    while not await has_account():
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # 1.20: and until the account has its token


async def delete_jobs(client: KubeClient, namespace: str) -> None:
    """Delete all jobs of the namespace, wait until the operator has let them go, then it."""
    for job in (await client.list(IPUJOBS, namespace)).items:
        await client.delete(IPUJOBS, job["metadata"]["name"], namespace)
    while (await client.list(IPUJOBS, namespace)).items:
        await asyncio.sleep(0.2)
    await delete_namespace(client, namespace)


async def delete_namespace(client: KubeClient, name: str) -> None:
    """Delete a namespace and wait until it is gone, so that the next round has the machine."""
    await client.delete(resources.NAMESPACES, name)
    async with asyncio.timeout(300):
        while any(
            one["metadata"]["name"] == name
            for one in (await client.list(resources.NAMESPACES)).items
        ):
            await asyncio.sleep(0.5)


async def until(condition: Any, seconds: float) -> None:
    """Poll `condition` often; the caller's times come from the watch."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def cpu_seconds(pid: int) -> float:
    """Return user and system CPU seconds of one process."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _quiet(line: str) -> None:
    if os.environ.get("BENCH_VERBOSE"):
        print(line, file=sys.stderr)
