"""The start of jobs with a launcher: one on an idle cluster, and a burst, each beside the floor.

Operator and proxy act by their own service accounts, since an API server lets its administrators
write roles at once and makes everybody else wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from ipuhub.kube.token import TokenSource
from partitions.client import ProxyClient
from tests.bench import mpijobs
from tests.bench.burst import (
    Load,
    api_calls,
    bench_client,
    compare,
    floor_manifests,
    manifests_of,
    operator_round,
    refuse_too_few_nodes,
    writes_a_job,
)
from tests.bench.demo_figures import spread
from tests.bench.floor import Floor, Template
from tests.bench.jobtimes import follow_jobs, submit
from tests.bench.surroundings import (
    ACCOUNT,
    delete_jobs,
    delete_namespace,
    make_namespace,
    processes,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest
    from tests.bench.jobtimes import Times

REST_SECONDS = 0.7  # between two single jobs: what belongs to the last job is written by then


async def run(options: argparse.Namespace) -> None:
    """Print single jobs, then bursts with partitions that take no time and half a second."""
    async with bench_client(options.kubeconfig) as (client, kubeconfig):
        if options.kubeconfig is not None:
            await refuse_too_few_nodes(client, 2 * max(options.jobs, options.singles))
        if options.singles:
            await single_ours(client, kubeconfig, options.singles, webhooks=options.webhooks)
            if not options.alone:
                await single_floor(client, kubeconfig, options.singles)
        for create_seconds in options.create_seconds if options.rounds else ():
            print(f"V-IPU takes {create_seconds:g} s for a partition")
            load = Load(
                options.jobs,
                launcher=True,
                create_seconds=create_seconds,
                webhooks=options.webhooks,
            )
            if options.alone:
                await alone(client, kubeconfig, load, options.rounds)
            elif options.mpi_operator is None:
                await compare(client, kubeconfig, load, options.rounds)
            else:
                await mpijobs.compare(
                    client, kubeconfig, options.mpi_operator, load, options.rounds
                )


async def alone(client: KubeClient, kubeconfig: Path, load: Load, rounds: int) -> None:
    """Print bursts of the operator beside nothing."""
    names = [f"burst-{os.getpid()}-{number}" for number in range(rounds)]
    found = [await operator_round(client, kubeconfig, name, load) for name in names]
    print(f"{load.shape}; {rounds} rounds")
    for key in found[0]:
        print(f"  {key:<46} {spread([one[key] for one in found])}", flush=True)


async def single_ours(client: KubeClient, kubeconfig: Path, jobs: int, *, webhooks: bool) -> None:
    """Print how soon one job after another starts, and what it makes the operator write."""
    namespace = f"single-{os.getpid()}"
    await make_namespace(client, namespace)
    async with (
        follow_jobs(client, namespace, launcher=True) as times,
        processes(
            kubeconfig, machines=max(8, jobs), webhooks=webhooks, create_seconds=0.0
        ) as around,
    ):
        calls, cpu = await api_calls(around), around.cpu_seconds()
        load = manifests_of(namespace, Load(jobs, launcher=True))
        await one_by_one(client, load, times, lambda _: None)
        called, after = await api_calls(around) - calls, around.cpu_seconds()
        print(f"single jobs, {jobs} one by one")
        print_times(times)
        for what, figure in writes_a_job(called, jobs).items():
            print(f"  {what:<46} {figure:.2f}")
        for name, seconds in after.items():
            print(f"  {f'CPU a job, {name}, ms':<46} {1000 * (seconds - cpu[name]) / jobs:.1f}")
        await delete_jobs(client, namespace)
    await delete_namespace(client, namespace)


async def single_floor(client: KubeClient, kubeconfig: Path, jobs: int) -> None:
    """Print the same of the floor program with the same proxy."""
    namespace = f"single-{os.getpid()}-floor"
    await make_namespace(client, namespace)
    load = Load(jobs, launcher=True)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        times = await enter(follow_jobs(client, namespace, launcher=True))
        around = await enter(
            processes(kubeconfig, machines=max(8, jobs), operator=False, create_seconds=0.0)
        )
        proxy = ProxyClient(around.proxy_url, TokenSource(client, ACCOUNT, "ipuhub-proxy"))
        stack.push_async_callback(proxy.close)
        floor = Floor(client, proxy, Template(namespace, has_launcher=True))
        await enter(floor.running())
        await one_by_one(client, floor_manifests(namespace, load), times, floor.jobs.put_nowait)
        print(f"floor, {jobs} one by one")
        print_times(times)
        await floor.release()
    await delete_namespace(client, namespace)


async def one_by_one(
    client: KubeClient,
    manifests: list[Manifest],
    times: Times,
    tell: Callable[[Manifest], None],
) -> None:
    """Submit jobs, each when the job before has run for a while."""
    for number, manifest in enumerate(manifests, 1):
        await submit(client, [manifest], times, tell)
        await times.until_all(number, 60)
        await asyncio.sleep(REST_SECONDS)


def print_times(times: Times) -> None:
    """Milliseconds from the answer to the POST."""
    for what, at in (("pods created", times.pods_at), ("Running", times.running_at)):
        waits = [1000 * (at[name] - submitted) for name, submitted in times.submitted.items()]
        print(f"  {f'submit -> {what}, ms':<46} {spread(waits)}", flush=True)
