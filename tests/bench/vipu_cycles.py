"""Cost of a partition's life cycle in vipu-server: create, ACTIVE, remove, under constant load."""

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
    if options.agents:
        with tempfile.TemporaryDirectory() as folder:
            _with_agents(folder, options)
        return
    for machines, partitions in ((8, 0), (1024, 0), (1024, 2000)):
        with tempfile.TemporaryDirectory() as folder:
            server, port = _server(folder, "--machines", str(machines))
            asyncio.run(_cycles(server, port, (machines, partitions), options))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_start(folder, options.stored))


def _with_agents(folder: str, options: argparse.Namespace) -> None:
    count = options.agents
    ports = _counted_ports(2 * count)
    command = [sys.executable, "-m", "partitions.vipu.agent.main", "--port", str(ports[0])]
    command += ["--exporter-port", str(ports[count]), "--machines", str(count)]
    command += ["--configure-latency-seconds", "0", "--log-level", "warning"]
    agents = subprocess.Popen(command)
    try:
        server, port = _server(
            folder, "--agents", ",".join(f"127.0.0.1:{p}" for p in ports[:count])
        )
        # Half of the IPUs are held meanwhile.
        asyncio.run(_cycles(server, port, (count, count), options))
    finally:
        agents.kill()
        agents.wait()


def _counted_ports(count: int) -> list[int]:
    """Free ports that follow each other, though other processes take some of the next."""
    ports = [free_port()]
    while len(ports) < count:
        port = free_port()
        ports = [*ports, port] if port == ports[-1] + 1 else [port]
    return ports


async def _cycles(
    server: subprocess.Popen[bytes],
    port: int,
    fleet: tuple[int, int],
    options: argparse.Namespace,
) -> None:
    machines, partitions = fleet
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
            while (await client.partition_status(partition)).ready_state is not ReadyState.ACTIVE:
                await asyncio.sleep(0.005)  # its agent has not confirmed yet
            await client.remove_partition(partition)


async def _start(folder: str, partitions: int) -> None:
    fleet = ("--machines", str(partitions))  # two IPUs of each machine's four are used
    server, port = _server(folder, *fleet)
    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
        await _ready(client)
        await _fill(client, partitions)
    server.kill()
    server.wait()
    began = time.monotonic()
    server, port = _server(folder, *fleet)
    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
        await _ready(client)
    took, used = time.monotonic() - began, psutil.Process(server.pid).memory_info().rss
    server.kill()
    server.wait()
    print(f"start with {partitions} partitions stored: {took:.1f} s, {used / 2**20:.0f} MiB")


def _server(folder: str, *fleet: str) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    command = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(port)]
    command += ["--storage", f"{folder}/state", *fleet]
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
