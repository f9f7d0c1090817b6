"""What `/stats` and `/query` cost the proxy: its CPU for an answer, and how long readers wait."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import web

from ipuhub.backoff import Backoff
from ipuhub.partition import Phase
from ipuhub.process.health import Health
from partitions.proxy import capacity
from partitions.proxy.app import build_app
from partitions.proxy.fleet import Fleet, FleetOptions
from partitions.proxy.lifecycle import TrackerEntry
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


RATE: Final = 50
"""Questions a second."""


async def _measure(address: str, options: argparse.Namespace) -> None:
    partitions, rounds = options.partitions, options.rounds
    await _fill(address, partitions)
    entries = [_entry(address, number) for number in range(partitions)]
    fleet = _fleet(address, fresh_seconds=3600)

    async def recent() -> list[ControllerView]:
        return (await fleet.recent_views())[0]

    answers: dict[str, Callable[[list[ControllerView]], object]] = {
        "/stats": lambda views: capacity.stats(entries, views),
        "/query": lambda views: capacity.query(views, 16),
    }
    ipus = 4 * options.machines
    print(f"{ipus} IPUs, {partitions} partitions; the proxy's CPU, median of {rounds}")
    for label, read in (
        ("a list for each", fleet.last_known_views),
        ("of the last second", recent),
    ):
        await read()
        for name, answer in answers.items():
            print(f"  {name}, {label}: {await _cpu(read, answer, rounds):.2f} ms")
    await fleet.close()
    await _measure_waits(address, entries, options.seconds)


async def _fill(address: str, partitions: int) -> None:
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


def _fleet(address: str, fresh_seconds: float) -> Fleet:
    fleet = Fleet(
        lambda there: VipuClient(there, deadline_seconds=90),
        lambda: f"{address}:vipu-ctrl=vctl1",
        lambda _: True,
        time.monotonic,
        FleetOptions(view_seconds=90, fresh_seconds=fresh_seconds),
    )
    fleet.reload()
    return fleet


def _entry(address: str, number: int) -> TrackerEntry:
    return TrackerEntry(
        uid=f"u-{number}",
        instance=0,
        namespace=f"team-{number % 40}",
        name=f"job-{number}",
        attempt=0,
        id=f"p-{number}",
        size=2,
        phase=Phase.ACTIVE,
        controller=address,
        label="vipu-ctrl=vctl1",
        reserved_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


async def _measure_waits(address: str, entries: list[TrackerEntry], seconds: int) -> None:
    """Print how long readers in another process wait for the proxy's own routes."""
    fleet = _fleet(address, fresh_seconds=FleetOptions().fresh_seconds)
    watching = asyncio.create_task(fleet.run())  # as the proxy does
    tracker = SimpleNamespace(entries={entry.id: entry for entry in entries})
    parts: Any = SimpleNamespace(
        store=SimpleNamespace(tracker=tracker), fleet=fleet, health=Health(), standby=lambda: ""
    )
    runner = web.AppRunner(build_app(parts, is_open=True), access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    command = [sys.executable, "-m", "tests.bench.proxy_reads"]
    load = os.getloadavg()[0]
    reader = await asyncio.create_subprocess_exec(
        *command, f"http://127.0.0.1:{port}", str(seconds)
    )
    await reader.wait()
    print(f"  (load of this machine before: {load:.1f})")
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await runner.cleanup()
    await fleet.close()


async def _read(url: str, seconds: int) -> None:
    """Ask at a fixed rate, whether or not the last answer has come."""
    async with aiohttp.ClientSession(url) as http:
        for method, path, body in (("GET", "/stats", None), ("POST", "/query", {"size": 16})):

            async def ask(due: float, method: str, path: str, body: object) -> float:
                await asyncio.sleep(due - time.monotonic())
                began = time.monotonic()
                async with http.request(method, path, json=body) as answer:
                    await answer.read()
                    answer.raise_for_status()
                return 1000 * (time.monotonic() - began)

            start = time.monotonic() + 0.5
            dues = [start + number / RATE for number in range(seconds * RATE)]
            waits = sorted(await asyncio.gather(*(ask(due, method, path, body) for due in dues)))
            half, most = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
            told = f"median {half:.1f} ms, p99 {most:.1f} ms, longest {waits[-1]:.1f} ms"
            print(f"  {path}, {RATE} a second for {seconds} s: {told}", flush=True)


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


if __name__ == "__main__":
    asyncio.run(_read(sys.argv[1], int(sys.argv[2])))
