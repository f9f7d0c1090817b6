"""The environment of an operator run: a cluster, V-IPU, proxy, namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster.demo.cluster import write_account_kubeconfig
from devcluster.demo.processes import answers
from devcluster.demo.supervisor import Process, Supervisor
from devcluster.server import DevCluster
from ipuhub.kube import resources
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from jobs.ipujob.names import IPUJOBS
from partitions.proxy.trackerstore import LABEL as TRACKER_LABEL
from tests.bench.admission import Admission
from tests.e2e.running_demo import ROOT
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONCURRENCY = 32
HOME = "ipuhub-system"
ACCOUNT = f"{HOME}/ipuhub-operator"
METRICS_TOKEN = "bench"  # of processes that live for a round
_CONTROL_PLANE = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
NODE_LABEL = "vipu-ctrl=vctl1"


@contextlib.asynccontextmanager
async def cluster(kubeconfig: Path | None) -> AsyncIterator[Path]:
    """Yield the given cluster's kubeconfig, or the kubeconfig of an embedded cluster with stand-in
    nodes."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    with tempfile.TemporaryDirectory() as folder:
        server = DevCluster(Path(folder))
        await server.start()
        supervisor = Supervisor(output=print_if_verbose)
        command = [sys.executable, str(ROOT / "manage.py"), "run_kubelet", "--nodes", "20"]
        environment = {"KUBECONFIG": str(server.kubeconfig)}
        supervisor.start(Process("kubelet", [*command, "--label", NODE_LABEL], environment))
        try:
            yield server.kubeconfig
        finally:
            await supervisor.stop()
            await server.stop()


class Surroundings:
    """Running processes by name (`vipu`, `proxy`, `operator`, `webhooks`) and where two of them
    listen."""

    def __init__(self, supervisor: Supervisor, proxy_url: str, operator_url: str) -> None:
        self.proxy_url = proxy_url
        self.operator_url = operator_url
        self._supervisor = supervisor

    def cpu_seconds(self) -> dict[str, float]:
        """User and system CPU seconds so far, by process."""
        names = ("operator", "proxy", "vipu", "webhooks")
        found = {name: self._supervisor.pid(name) for name in names}
        return {name: cpu_seconds(pid) for name, pid in found.items() if pid}

    def pid(self, name: str) -> int:
        """The process id; 0: there is none."""
        return self._supervisor.pid(name) or 0


@contextlib.asynccontextmanager
async def processes(
    kubeconfig: Path,
    machines: int,
    *,
    operator: bool = True,
    webhooks: bool = False,
    create_seconds: float = 0.2,
) -> AsyncIterator[Surroundings]:
    """Run vipu-server and proxy and, where they are wanted, operator and webhooks, each by its own
    account: an API server treats what a cluster's administrator writes differently.

    The tracker goes with them: a round must not drag the tombstones of others along.
    """
    supervisor = Supervisor(output=print_if_verbose)
    vipu, proxy, health = (free_port() for _ in range(3))
    around = Surroundings(supervisor, f"http://127.0.0.1:{proxy}", f"http://127.0.0.1:{health}")
    manage = [sys.executable, str(ROOT / "manage.py")]
    async with _accounts(kubeconfig) as (folder, kubeconfigs):
        environment = {
            "PROXY_PORT": str(proxy),
            "IPUHUB_PROXY_URL": around.proxy_url,
            "IPUHUB_VIPU_CONTROLLERS": f"127.0.0.1:{vipu}:{NODE_LABEL}",
            "IPUHUB_NAMESPACE": HOME,
            "IPUHUB_SERVICE_ACCOUNT": ACCOUNT,
            "IPUHUB_HEALTH_PORT": str(health),
            "IPUHUB_METRICS_TOKEN": METRICS_TOKEN,
        }
        server = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(vipu)]
        server += ["--storage", f"{folder}/vipu.json", "--machines", str(machines)]
        own = {name: environment | {"KUBECONFIG": str(path)} for name, path in kubeconfigs.items()}
        wanted = [
            Process("vipu", [*server, "--create-latency-seconds", str(create_seconds)]),
            _serving("proxy", [*manage, "run_vipu_proxy"], own["proxy"], around.proxy_url),
        ]
        if operator:
            command = [*manage, "run_operator"]
            wanted.append(_serving("operator", command, own["operator"], around.operator_url))
        admission = Admission(folder, ACCOUNT) if webhooks else None
        if admission is not None:
            wanted.append(admission.process(own["operator"], answers))
        for process in wanted:
            supervisor.start(process)
        try:
            for process in wanted[1:]:
                await supervisor.wait_ready(process.name)
            async with admission.configured(kubeconfig) if admission else contextlib.nullcontext():
                yield around
        finally:
            await supervisor.stop()


@contextlib.asynccontextmanager
async def _accounts(kubeconfig: Path) -> AsyncIterator[tuple[Path, dict[str, Path]]]:
    """Yield a folder and in it kubeconfigs of the proxy's and the operator's accounts; remove the
    tracker that they leave."""
    async with KubeClient(load_config(str(kubeconfig))) as client:
        with tempfile.TemporaryDirectory() as folder:
            found = {
                name: await write_account_kubeconfig(
                    client, kubeconfig, Path(folder), f"{HOME}/ipuhub-{name}"
                )
                for name in ("proxy", "operator")
            }
            yield Path(folder), found
        left = await client.list(resources.CONFIG_MAPS, HOME, label_selector=TRACKER_LABEL)
        for one in left.items:
            await client.delete(resources.CONFIG_MAPS, one["metadata"]["name"], HOME)


def _serving(name: str, command: list[str], environment: dict[str, str], url: str) -> Process:
    return Process(name, command, environment, is_ready=lambda: answers(f"{url}/readyz"))


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
    """Delete all jobs of the namespace and wait until the operator has let them go."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def delete(name: str) -> None:
        async with limit:
            await client.delete(IPUJOBS, name, namespace)

    found = (await client.list(IPUJOBS, namespace)).items
    await asyncio.gather(*(delete(job["metadata"]["name"]) for job in found))
    while (await client.list(IPUJOBS, namespace)).items:
        await asyncio.sleep(0.5)


async def delete_namespace(client: KubeClient, name: str) -> None:
    """Delete a namespace and wait until it is gone, so that the next round has the machine."""
    await client.delete(resources.NAMESPACES, name)
    async with asyncio.timeout(900):
        while any(
            one["metadata"]["name"] == name
            for one in (await client.list(resources.NAMESPACES)).items
        ):
            await asyncio.sleep(0.5)


def cpu_seconds(pid: int) -> float:
    """Return user and system CPU seconds of one process."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def control_plane_cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds of a real cluster's programs on this machine, by program; empty: none
    runs here."""
    found: Counter[str] = Counter()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            program = (folder / "cmdline").read_text(encoding="utf-8").partition("\0")[0]
            name = program.rpartition("/")[2]
            if name in _CONTROL_PLANE:
                found[name] += cpu_seconds(int(folder.name))
    return dict(found)


def machine_cpu_seconds() -> float:
    """Return the CPU seconds that all processes of this machine have used, interrupts included."""
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def print_if_verbose(line: str) -> None:
    """Print what a process says only where BENCH_VERBOSE is set."""
    if os.environ.get("BENCH_VERBOSE"):
        print(line, file=sys.stderr)
