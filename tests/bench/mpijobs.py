"""Bursts of MPIJobs through Kubeflow's mpi-operator, in turn with ours on the same API server.

An MPIJob here has what our sample has: a launcher and a worker, the same image and commands. The
operator runs by its own service account, without its client's default limit of 5 requests/s. Its
CRD, account and rights come from its repository (`kubectl apply -k manifests/overlays/standalone`),
its program from `go build ./cmd/mpi-operator`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster.demo.cluster import write_account_kubeconfig
from devcluster.demo.supervisor import Process, Supervisor
from ipuhub.kube.resources import LEASES, Resource
from tests.bench.burst import ServerMeter, operator_round
from tests.bench.demo_figures import spread
from tests.bench.jobtimes import Subject, follow_jobs, job_manifest, submit
from tests.bench.surroundings import (
    cpu_seconds,
    delete_namespace,
    make_namespace,
    print_if_verbose,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest
    from tests.bench.burst import Load

MPIJOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
HOME = "mpi-operator"


def is_running(job: Manifest) -> bool:
    """Return whether the MPIJob has the condition Running."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Running" and one["status"] == "True" for one in conditions)


SUBJECT = Subject(MPIJOBS, "training.kubeflow.org/job-name", is_running)


def mpijob_manifest(namespace: str, name: str) -> Manifest:
    """Return the MPIJob with the pods of our sample."""
    worker = job_manifest(namespace, name, launcher=True)["spec"]["workers"]["template"]["spec"]
    containers = [{key: one[key] for key in ("name", "image")} for one in worker["containers"]]
    launcher = {"containers": [{**containers[0], "command": ["mpirun"]}]}
    sleeper = {"containers": [{**containers[0], "command": ["sleep", "infinity"]}]}
    return {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "mpiReplicaSpecs": {
                role: {"replicas": 1, "template": {"spec": spec}}
                for role, spec in (("Launcher", launcher), ("Worker", sleeper))
            }
        },
    }


async def compare(
    client: KubeClient, kubeconfig: Path, program: Path, load: Load, rounds: int
) -> None:
    """Alternate rounds of both operators, each beginning every other pair, and print them."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for number in range(rounds):
        name = f"peer-{os.getpid()}-{number}"

        async def us(name: str = name) -> None:
            ours.append(await operator_round(client, kubeconfig, name, load))

        async def them(name: str = name) -> None:
            found = await mpi_round(client, kubeconfig, program, f"{name}-mpi", load)
            theirs.append(found)

        for one in (us, them) if number % 2 == 0 else (them, us):
            await one()
    print(f"beside mpi-operator; {load.shape}; {rounds} rounds", flush=True)
    for key in sorted(ours[0].keys() & theirs[0].keys()):
        ratio = statistics.median(b[key] / a[key] for a, b in zip(ours, theirs, strict=True))
        print(f"  {key}")
        print(f"    {'ours':<20} {spread([one[key] for one in ours])}")
        print(f"    {'mpi-operator':<20} {spread([one[key] for one in theirs])}")
        better = 1 / ratio if key.startswith("jobs/s") else ratio
        print(f"    {'ours is better by':<20} {better:.2f} (paired median)", flush=True)


async def mpi_round(
    client: KubeClient, kubeconfig: Path, program: Path, namespace: str, load: Load
) -> dict[str, float]:
    """Submit the load to mpi-operator; return seconds, rates, CPU and the server's writes."""
    await make_namespace(client, namespace)
    manifests = [mpijob_manifest(namespace, f"job-{n}") for n in range(load.jobs)]
    async with (
        follow_jobs(client, namespace, load.launcher, SUBJECT) as times,
        running(client, kubeconfig, program) as pid,
    ):
        cpu, meter = cpu_seconds(pid), await ServerMeter.begin(kubeconfig)
        await submit(client, manifests, times)
        await times.until_all(load.jobs, load.seconds)
        found = times.figures()
        found |= await meter.a_job(load.jobs)
        found["CPU a job to Running, operator, ms"] = 1000 * (cpu_seconds(pid) - cpu) / load.jobs
        await _delete_all(client, namespace)
    await delete_namespace(client, namespace)
    return found


@contextlib.asynccontextmanager
async def running(client: KubeClient, kubeconfig: Path, program: Path) -> AsyncIterator[int]:
    """Run mpi-operator by its service account; yield its process id once it leads."""
    supervisor = Supervisor(output=print_if_verbose)
    with tempfile.TemporaryDirectory() as folder:
        account = await write_account_kubeconfig(
            client, kubeconfig, Path(folder), f"{HOME}/mpi-operator"
        )
        with contextlib.suppress(Exception):  # of the round before; its holder has ended
            await client.delete(LEASES, "mpi-operator", HOME)
        limits = ["-kube-api-qps=1000", "-kube-api-burst=1000", "-threadiness=16"]
        limits += ["-controller-queue-rate-limit=1000", "-controller-queue-burst=1000"]
        command = [str(program), f"-kubeConfig={account}", f"-lock-namespace={HOME}", *limits]

        # It prefers the environment's kubeconfig, the administrator's, to the option.
        environment = {"KUBECONFIG": str(account)}

        async def leads() -> bool:
            leases: list[Manifest] = (await client.list(LEASES, HOME)).items
            return any((one.get("spec") or {}).get("holderIdentity") for one in leases)

        supervisor.start(Process("mpi-operator", command, environment, is_ready=leads))
        try:
            await supervisor.wait_ready("mpi-operator")
            await asyncio.sleep(2)  # its caches
            yield supervisor.pid("mpi-operator") or 0
        finally:
            await supervisor.stop()


async def _delete_all(client: KubeClient, namespace: str) -> None:
    for job in (await client.list(MPIJOBS, namespace)).items:
        await client.delete(MPIJOBS, job["metadata"]["name"], namespace)
