"""A stream of jobs through the operator's own process: which rate it keeps, and how soon."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from tests.bench.burst import Load, bench_client, operator_round
from tests.bench.jobtimes import submit

if TYPE_CHECKING:
    import argparse

    from ipuhub.kube.client import KubeClient
    from tests.bench.burst import Submit
    from tests.bench.jobtimes import Times

KEPT_SECONDS = 5.0  # the last job's pods are there within that of its submission


async def run(options: argparse.Namespace) -> None:
    """Print the figures of each rate, and the highest that was kept, for each shape."""
    shapes = {"launcher": [True], "plain": [False]}.get(options.shape, [True, False])
    async with bench_client(options.kubeconfig) as (client, kubeconfig):
        for launcher in shapes:
            kept = 0.0
            for rate in options.rates:
                load = Load(int(rate * options.seconds), launcher, paced(rate))
                name = f"stream-{os.getpid()}-{rate:g}-{'l' if launcher else 'p'}"
                found = await operator_round(client, kubeconfig, name, load)
                print(f"{load.shape}; {rate:g} jobs/s for {options.seconds:g} s")
                for key, value in found.items():
                    print(f"  {key:<46} {value:.2f}", flush=True)
                if found["last submit -> all pods created, s"] > KEPT_SECONDS:
                    break
                kept = rate
            print(f"highest rate kept, 1 worker, {launcher=}: {kept:g} jobs/s", flush=True)


def paced(rate: float) -> Submit:
    """A way to submit: `rate` jobs each second, however long each takes."""

    async def steadily(
        client: KubeClient, manifests: list[dict[str, Any]], times: Times, tell: Any
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number, manifest in enumerate(manifests):
                await asyncio.sleep(max(began + number / rate - loop.time(), 0.0))
                group.create_task(submit(client, [manifest], times, tell))

    return steadily
