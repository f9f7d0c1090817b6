"""What a partition's life costs vipu-server: create, ACTIVE, remove, by clients that never rest."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import psutil

from ipuhub.backoff import Backoff
from partitions.vipu.client import CreateRequest, VipuClient
from partitions.vipu.errors import Unavailable
from partitions.vipu.types import ReadyState
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    import argparse

_IPUS_PER_MACHINE = 4
_CLIENTS = 8


def run(options: argparse.Namespace) -> None:
    """Print cycles a second and the server's CPU a cycle, in an empty and in a used fleet."""
    for machines, partitions in ((8, 0), (1024, 0), (1024, 2000)):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_cycles(folder, machines, partitions, options))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_start(folder, options.stored))


async def _cycles(folder: str, machines: int, partitions: int, options: argparse.Namespace) -> None:
    server, port = _server(folder, machines)
    try:
        async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
            await _ready(client)
            await _fill(client, partitions)
        rates, costs = [], []
        for number in range(options.rounds):
            before, began = _cpu(server), time.monotonic()
            await asyncio.gather(
                *(_live(port, f"c{number}-{one}", options.cycles) for one in range(_CLIENTS))
            )
            done = _CLIENTS * options.cycles
            rates.append(done / (time.monotonic() - began))
            costs.append(1000 * (_cpu(server) - before) / done)
    finally:
        server.kill()
        server.wait()
    print(
        f"{_IPUS_PER_MACHINE * machines} IPUs, {partitions} partitions, {_CLIENTS} clients: "
        f"{statistics.median(rates):.0f} cycles/s ({min(rates):.0f} to {max(rates):.0f}), "
        f"{statistics.median(costs):.2f} ms of the server's CPU a cycle"
    )


async def _live(port: int, name: str, cycles: int) -> None:
    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
        for number in range(cycles):
            partition = f"{name}-{number}"
            await client.create_partition(CreateRequest(partition, 1))
            status = await client.partition_status(partition)
            assert status.ready_state is ReadyState.ACTIVE
            await client.remove_partition(partition)


async def _start(folder: str, partitions: int) -> None:
    machines = partitions  # two IPUs of each machine's four are used
    server, port = _server(folder, machines)
    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
        await _ready(client)
        await _fill(client, partitions)
    server.kill()
    server.wait()
    began = time.monotonic()
    server, port = _server(folder, machines)
    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
        await _ready(client)
    took, used = time.monotonic() - began, psutil.Process(server.pid).memory_info().rss
    server.kill()
    server.wait()
    print(f"start with {partitions} partitions stored: {took:.1f} s, {used / 2**20:.0f} MiB")


def _server(folder: str, machines: int) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    command = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(port)]
    command += ["--storage", f"{folder}/state", "--machines", str(machines)]
    command += ["--create-latency-seconds", "0", "--log-level", "warning"]
    return subprocess.Popen(command), port


async def _ready(client: VipuClient) -> None:
    wait = Backoff(first_seconds=0.1, max_seconds=0.5)
    for failures in range(120):
        try:
            await client.version()
        except Unavailable:
            await asyncio.sleep(wait.delay_seconds(failures, 0.5))
        else:
            return
    raise SystemExit("vipu-server does not answer")


async def _fill(client: VipuClient, partitions: int) -> None:
    few = asyncio.Semaphore(_CLIENTS)

    async def create(number: int) -> None:
        async with few:
            await client.create_partition(CreateRequest(f"p-{number}", 2 if number % 40 else 1))

    await asyncio.gather(*map(create, range(partitions)))


def _cpu(server: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system
