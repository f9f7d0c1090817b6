"""What `/stats` and `/query` cost the proxy, with a list asked for and with one a second old."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from ipuhub.backoff import Backoff
from partitions.proxy import capacity
from partitions.proxy.fleet import Fleet, FleetOptions
from partitions.vipu.client import CreateRequest, VipuClient
from partitions.vipu.errors import Unavailable
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from partitions.proxy.controllers import ControllerView


def run(options: argparse.Namespace) -> None:
    """Print milliseconds of the proxy's CPU a question, median of many, over real gRPC."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(port)]
        command += ["--storage", f"{folder}/state", "--machines", str(options.machines)]
        command += ["--create-latency-seconds", "0"]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            asyncio.run(_measure(f"127.0.0.1:{port}", options))
        finally:
            server.kill()
            server.wait()


async def _measure(address: str, options: argparse.Namespace) -> None:
    partitions, rounds = options.partitions, options.rounds
    async with VipuClient(address, deadline_seconds=90) as client:
        wait = Backoff(first_seconds=0.1, max_seconds=1)
        for failures in range(60):
            try:
                await client.list_partitions()
                break
            except Unavailable:
                await asyncio.sleep(wait.delay_seconds(failures, 0.5))
        for number in range(partitions):
            await client.create_partition(CreateRequest(f"p-{number}", 2))
    fleet = Fleet(
        lambda there: VipuClient(there, deadline_seconds=90),
        lambda: f"{address}:vipu-ctrl=vctl1",
        lambda _: True,
        time.monotonic,
        FleetOptions(view_seconds=90, fresh_seconds=3600),
    )
    fleet.reload()

    async def recent() -> list[ControllerView]:
        return (await fleet.recent_views())[0]

    print(
        f"{4 * options.machines} IPUs, {partitions} partitions; the proxy's CPU, median of {rounds}"
    )
    for label, read in (
        ("a list for each", fleet.last_known_views),
        ("of the last second", recent),
    ):
        await read()
        for name, answer in _ANSWERS.items():
            print(f"  {name}, {label}: {await _cpu(read, answer, rounds):.2f} ms")
    await fleet.close()


_ANSWERS: dict[str, Callable[[list[ControllerView]], object]] = {
    "/stats": lambda views: capacity.stats([], views),
    "/query": lambda views: capacity.query(views, 16),
}


async def _cpu(
    read: Callable[[], Awaitable[list[ControllerView]]],
    answer: Callable[[list[ControllerView]], object],
    rounds: int,
) -> float:
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        json.dumps(answer(await read()))
        spent.append(1000 * (time.process_time() - began))
        await asyncio.sleep(0)
    return statistics.median(spent)
