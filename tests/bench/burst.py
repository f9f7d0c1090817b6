"""Bursts and streams of jobs through the operator's own process, beside the floor program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import statistics
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from devcluster.demo.cluster import ACCESS_FILE, CRD_FILE, apply_file
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import NODES
from ipuhub.kube.token import TokenSource
from partitions.client import ProxyClient
from tests.bench.demo_figures import proportional_set_sizes, spread
from tests.bench.floor import Floor, Template
from tests.bench.jobtimes import follow_jobs, job_manifest, submit
from tests.bench.surroundings import (
    ACCOUNT,
    CONCURRENCY,
    METRICS_TOKEN,
    NODE_LABEL,
    cluster,
    control_plane_cpu_seconds,
    delete_jobs,
    delete_namespace,
    machine_cpu_seconds,
    make_namespace,
    processes,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.bench.jobtimes import Times
    from tests.bench.surroundings import (
        Surroundings,
    )

    Calls = Counter[tuple[str, str, bool]]
    Submit = Callable[[KubeClient, list[dict[str, Any]], Times, Any], Awaitable[None]]

RATE = "jobs/s, first submit -> all {}"
MACHINE = "CPU a job to Running, whole machine, ms"
WRITES = {"create", "patch", "replace", "delete"}
# POST, PUT, PATCH of what is kept: reviews and tokens are answered, not written.
_SERVED_WRITES = {"POST", "PUT", "PATCH", "APPLY"}
_NO_OBJECTS = {"leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"}
_SERVED = re.compile(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)
_REQUESTS = re.compile(r"ipuhub_kube_requests_total\{([^}]*)\} ([0-9.e+]+)")


@dataclass(frozen=True)
class Load:
    """The load: what is submitted and how. `seconds` is the patience with all of it,
    `create_seconds` V-IPU's time for a partition; with `webhooks` the API server asks them about
    each job."""

    jobs: int
    launcher: bool
    submit: Submit = submit
    seconds: float = 600.0
    create_seconds: float = 0.2
    webhooks: bool = False

    @property
    def shape(self) -> str:
        """In words."""
        return f"{self.jobs} jobs, 1 worker, {'with' if self.launcher else 'without'} launcher"


@contextlib.asynccontextmanager
async def bench_client(kubeconfig: Path | None) -> AsyncIterator[tuple[KubeClient, Path]]:
    """Yield a client of the cluster, with our CRD and rights in it, and its kubeconfig."""
    async with (
        cluster(kubeconfig) as found,
        KubeClient(load_config(str(found)), max_connections=4 * CONCURRENCY) as client,
    ):
        for path in (CRD_FILE, ACCESS_FILE):
            await apply_file(client, path)
        yield client, found


async def run(options: argparse.Namespace) -> None:
    """Print operator and floor figures of `rounds` alternating rounds for each shape and size."""
    shapes = {"launcher": [True], "plain": [False]}.get(options.shape, [True, False])
    async with bench_client(options.kubeconfig) as (client, kubeconfig):
        if options.kubeconfig is not None:
            await refuse_too_few_nodes(client, max(options.jobs) * (1 + max(shapes)))
        for jobs in options.jobs:
            for launcher in shapes:
                await compare(client, kubeconfig, Load(jobs, launcher), options.rounds)


async def refuse_too_few_nodes(client: KubeClient, pods: int) -> None:
    """Exit with a sentence where the nodes for our pods have no place for that many at once."""
    nodes = (await client.list(NODES, label_selector=NODE_LABEL)).items
    if not nodes:
        raise SystemExit(
            f"no node has the label {NODE_LABEL}, by which pods find the controller. Give it to "
            f"all nodes that may be used: kubectl label node NAME {NODE_LABEL}"
        )
    room = sum(int(node["status"].get("allocatable", {}).get("pods", 0)) for node in nodes)
    if room < pods:
        raise SystemExit(
            f"{pods} pods are to run at once, and the {len(nodes)} nodes with the label "
            f"{NODE_LABEL} take {room}: label or start more nodes, or start fewer jobs"
        )


async def compare(client: KubeClient, kubeconfig: Path, load: Load, rounds: int) -> None:
    """Alternate rounds of the operator and of both floors, and print them; none: print nothing."""
    if not rounds:
        return
    ours, floors, bare = [], [], []
    for number in range(rounds):
        name = f"burst-{os.getpid()}-{load.jobs}-{'l' if load.launcher else 'p'}-{number}"
        ours.append(await operator_round(client, kubeconfig, name, load))
        floors.append(await floor_round(client, kubeconfig, f"{name}-floor", load))
        bare.append(await floor_round(client, None, f"{name}-bare", load))
    print(f"{load.shape}; {rounds} rounds", flush=True)
    for key in ours[0]:
        print(f"  {key:<46} {spread([one[key] for one in ours])}")
    for label, found in (("floor", floors), ("floor without partitions", bare)):
        for what in ("pods created", "Running"):
            key = RATE.format(what)
            ratio = statistics.median(a[key] / b[key] for a, b in zip(ours, found, strict=True))
            print(f"  {f'{label}, jobs/s to {what}':<46} {spread([one[key] for one in found])}")
            print(f"  {'  operator / it (paired median)':<46} {ratio:.2f}", flush=True)
        print(f"  {f'{label}, {MACHINE}':<46} {spread([one[MACHINE] for one in found])}")


async def operator_round(
    client: KubeClient, kubeconfig: Path, namespace: str, load: Load
) -> dict[str, float]:
    """Submit the load to a running operator; return seconds, rates, CPU and writes."""
    await make_namespace(client, namespace)
    manifests = manifests_of(namespace, load)
    async with (
        follow_jobs(client, namespace, load.launcher) as times,
        processes(
            kubeconfig,
            machines=max(8, load.jobs),
            webhooks=load.webhooks,
            create_seconds=load.create_seconds,
        ) as around,
    ):
        cpu, calls = around.cpu_seconds(), await api_calls(around)
        meter = await ServerMeter.begin(kubeconfig)
        await load.submit(client, manifests, times, lambda _: None)
        await times.until_all(load.jobs, load.seconds)
        found = times.figures()
        found |= await meter.a_job(load.jobs)
        after, called = around.cpu_seconds(), await api_calls(around) - calls
        for name, seconds in after.items():
            found[f"CPU a job to Running, {name}, ms"] = 1000 * (seconds - cpu[name]) / load.jobs
        found |= writes_a_job(called, load.jobs)
        sizes = proportional_set_sizes(around.pid("operator"))
        found["operator PSS, MiB"] = sum(sizes.values()) / 2**20
        await delete_jobs(client, namespace)
    await delete_namespace(client, namespace)
    return found


async def floor_round(
    client: KubeClient, kubeconfig: Path | None, namespace: str, load: Load
) -> dict[str, float]:
    """Submit the load to the floor program; without a kubeconfig it reserves nothing."""
    await make_namespace(client, namespace)
    manifests = floor_manifests(namespace, load)
    async with contextlib.AsyncExitStack() as stack:
        times = await stack.enter_async_context(follow_jobs(client, namespace, load.launcher))
        proxy = None
        if kubeconfig is not None:
            around = await stack.enter_async_context(
                processes(
                    kubeconfig,
                    machines=max(8, load.jobs),
                    operator=False,
                    create_seconds=load.create_seconds,
                )
            )
            token = TokenSource(client, ACCOUNT, "ipuhub-proxy")
            proxy = ProxyClient(around.proxy_url, token)
            stack.push_async_callback(proxy.close)
        floor = Floor(client, proxy, Template(namespace, has_launcher=load.launcher))
        await stack.enter_async_context(floor.running())
        machine = machine_cpu_seconds()
        await load.submit(client, manifests, times, floor.jobs.put_nowait)
        await times.until_all(load.jobs, load.seconds)
        machine = machine_cpu_seconds() - machine
        await floor.release()
    await delete_namespace(client, namespace)
    return times.figures() | {MACHINE: 1000 * machine / load.jobs}


def manifests_of(namespace: str, load: Load) -> list[dict[str, Any]]:
    """The jobs to submit, made before the clock runs."""
    return [job_manifest(namespace, f"job-{n}", load.launcher) for n in range(load.jobs)]


def floor_manifests(namespace: str, load: Load) -> list[dict[str, Any]]:
    """The same without the finalizer, which no operator would remove."""
    manifests = manifests_of(namespace, load)
    for manifest in manifests:
        manifest["metadata"].pop("finalizers")
    return manifests


@dataclass(frozen=True)
class ServerMeter:
    """CPU that a cluster on this machine has used between `begin` and a reading."""

    kubeconfig: Path
    machine: float
    programs: dict[str, float]
    writes: int

    @classmethod
    async def begin(cls, kubeconfig: Path) -> ServerMeter:
        """Read all meters."""
        writes = await server_writes(kubeconfig)
        return cls(kubeconfig, machine_cpu_seconds(), control_plane_cpu_seconds(), writes)

    async def a_job(self, jobs: int) -> dict[str, float]:
        """Return CPU in ms and writes since the beginning, divided by a number of jobs."""
        cpu = {MACHINE: machine_cpu_seconds() - self.machine}
        for program, seconds in control_plane_cpu_seconds().items():
            cpu[f"CPU a job to Running, {program}, ms"] = seconds - self.programs.get(program, 0)
        written = await server_writes(self.kubeconfig) - self.writes
        found = {what: 1000 * seconds / jobs for what, seconds in cpu.items()}
        return found | {"writes of all clients a job": written / jobs}


async def server_writes(kubeconfig: Path) -> int:
    """Return how many writes a real API server has answered, to any client, Leases apart; 0: the
    embedded API does not count."""
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "get", "--raw", "/metrics"]
    counter = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    text = (await counter.communicate())[0].decode()
    found = 0
    for labels, count in _SERVED.findall(text):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if pairs["verb"] in _SERVED_WRITES and pairs["resource"] not in _NO_OBJECTS:
            found += int(float(count))
    return found


async def api_calls(around: Surroundings) -> Calls:
    """The operator's requests to the API server so far, by verb, plural, and whether it did it."""
    headers = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{around.operator_url}/metrics") as answer,
    ):
        text = await answer.text()
    found: Counter[tuple[str, str, bool]] = Counter()
    for labels, count in _REQUESTS.findall(text):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[pairs["verb"], pairs["resource"], pairs["code"] == "ok"] += int(float(count))
    return found


def writes_a_job(calls: Calls, jobs: int) -> dict[str, float]:
    """Requests of the operator a job: writes without Events and Leases, Events, reads."""
    own = {key: n for key, n in calls.items() if key[1] != "leases"}
    events = sum(n for (_, plural, _), n in own.items() if plural == "events")
    writes = {key: n for key, n in own.items() if key[0] in WRITES and key[1] != "events"}
    reads = sum(n for (verb, *_), n in own.items() if verb in {"get", "list"})
    to_jobs = sum(n for (_, plural, _), n in writes.items() if plural == "ipujobs")
    return {
        "API writes a job to Running, Events apart": sum(writes.values()) / jobs,
        "  of them to the job itself": to_jobs / jobs,
        "  of them refused": sum(n for (*_, is_ok), n in writes.items() if not is_ok) / jobs,
        "Events a job to Running": events / jobs,
        "API reads a job to Running": reads / jobs,
    }
