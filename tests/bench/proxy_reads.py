"""Cost of `/stats` and `/query`: the proxy's CPU for each answer, and latency for readers."""

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
from tests.fakes.vipu import unfenced

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Sequence

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
CALM_MS: Final = 3.0
"""How fast the floor answers while the machine has time."""


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
        lambda there: unfenced(VipuClient(there, deadline_seconds=90)),
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
    floor_port, load = free_port(), os.getloadavg()[0]
    floor = await asyncio.create_subprocess_exec(*command, str(floor_port))
    urls = [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{floor_port}"]
    reader = await asyncio.create_subprocess_exec(*command, *urls, str(seconds))
    await reader.wait()
    print(f"  (load of this machine before: {load:.1f}, after: {os.getloadavg()[0]:.1f})")
    floor.kill()
    await floor.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await runner.cleanup()
    await fleet.close()


async def _read(url: str, floor_url: str, seconds: int) -> None:
    """Ask at a fixed rate, whether or not the last answer has come. Between every two questions
    ask the floor, which shows what the machine's other work costs."""
    async with aiohttp.ClientSession(url) as http, aiohttp.ClientSession(floor_url) as floor:
        await _wait_for_floor(floor)
        for method, path, body in (("GET", "/stats", None), ("POST", "/query", {"size": 16})):

            async def ask(due: float, method: str, path: str, body: object) -> float:
                await asyncio.sleep(due - time.monotonic())
                began = time.monotonic()
                async with http.request(method, path, json=body) as answer:
                    await answer.read()
                    answer.raise_for_status()
                return 1000 * (time.monotonic() - began)

            async def ask_floor(due: float) -> float:
                await asyncio.sleep(due - time.monotonic())
                began = time.monotonic()
                async with floor.get("/") as answer:
                    await answer.read()
                return 1000 * (time.monotonic() - began)

            start = time.monotonic() + 0.5
            dues = [start + number / RATE for number in range(seconds * RATE)]
            waits, floors = await asyncio.gather(
                asyncio.gather(*(ask(due, method, path, body) for due in dues)),
                asyncio.gather(*(ask_floor(due - 0.5 / RATE) for due in [*dues, dues[-1] + 1])),
            )
            around = zip(waits, floors, floors[1:], strict=False)
            calm = [wait for wait, *beside in around if max(beside) <= CALM_MS]
            print(f"  {path}, {RATE} a second for {seconds} s: {_told(waits)}")
            print(f"    the floor at the same time: {_told(floors)}")
            print(
                f"    beside answers of the floor within {CALM_MS:g} ms: {_told(calm)}", flush=True
            )


def _told(waits: Sequence[float]) -> str:
    """The waits in ms in a few numbers."""
    if not waits:
        return "none"
    found = sorted(waits)
    half, most = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"median {half:.1f} ms, p99 {most:.1f} ms, longest {found[-1]:.1f} ms of {len(found)}"


async def _wait_for_floor(floor: aiohttp.ClientSession) -> None:
    wait = Backoff(first_seconds=0.1, max_seconds=1)
    for failures in range(60):
        try:
            async with floor.get("/"):
                return
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(wait.delay_seconds(failures, 0.5))


async def _serve_floor(port: int) -> None:
    """Answer any question with a constant, in a process of its own."""
    app = web.Application()
    app.router.add_get("/", lambda _: _constant())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


async def _constant() -> web.Response:
    return web.json_response({"size": 16, "available": True})


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
    if len(sys.argv) == 2:
        asyncio.run(_serve_floor(int(sys.argv[1])))
    else:
        asyncio.run(_read(sys.argv[1], sys.argv[2], int(sys.argv[3])))
