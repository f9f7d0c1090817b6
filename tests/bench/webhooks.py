"""Latency of `run_webhooks` over TLS, and its memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from devcluster.security.certificates import Authority
from ipuhub.certificates import write_private
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH
from tests.bench.load_memory import MIB, sizes_below
from tests.builders.ipujobs import ipujob
from tests.e2e.running_demo import ROOT
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

HOST = "127.0.0.1"


def run(options: argparse.Namespace) -> None:
    """Print rounds of latency at a fixed rate beside a floor that answers the same bytes."""
    asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder) / "pki")
        context = ssl.create_default_context(cadata=authority.ca_pem.decode())
        with process(Path(folder), authority, "webhooks") as (pid, url):
            up, spent = await until_up(url, context), cpu_seconds(pid)
            print(f"started: {up:.1f} s, {spent:.2f} s of CPU; {sizes(pid)}")
            with process(Path(folder), authority, "floor") as (floor_pid, floor_url):
                await until_up(floor_url, context)
                await compare(options, context, (pid, url), (floor_pid, floor_url))
            print(f"after all rounds: {sizes(pid)}")


async def compare(
    options: argparse.Namespace,
    context: ssl.SSLContext,
    ours: tuple[int, str],
    floor: tuple[int, str],
) -> None:
    """Alternate rounds of both and print medians; a request is one review of a new job."""
    found: dict[str, list[list[float]]] = {"webhooks": [], "floor": []}
    spent: dict[str, float] = {}
    for _ in range(options.rounds):
        for name, (pid, url) in (("webhooks", ours), ("floor", floor)):
            before = cpu_seconds(pid)
            found[name].append(await load(url, context, options))
            spent[name] = cpu_seconds(pid) - before
    requests = options.rate * options.seconds
    for name, rounds in found.items():
        p50 = [percentile(one, 0.50) * 1000 for one in rounds]
        p99 = [percentile(one, 0.99) * 1000 for one in rounds]
        worst = max(max(one) for one in rounds) * 1000
        print(
            f"{name}: p50 {spread(p50)} ms, p99 {spread(p99)} ms, worst {worst:.1f} ms; "
            f"{spent[name] / requests * 1000:.2f} ms of CPU a request"
        )


async def load(url: str, context: ssl.SSLContext, options: argparse.Namespace) -> list[float]:
    """Seconds of each answer at a fixed rate, counted from when the request was due."""
    taken: list[float] = []
    bodies = [(MUTATE_PATH, body()), (VALIDATE_PATH, body())]
    connector = aiohttp.TCPConnector(ssl=context, limit=32)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for number in range(options.rate * options.seconds):
            due = began + number / options.rate
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            path, data = bodies[number % 2]
            group.create_task(ask(session, url + path, data, due, taken))
    return taken


async def ask(
    session: aiohttp.ClientSession, url: str, data: bytes, due: float, taken: list[float]
) -> None:
    """One review."""
    async with session.post(url, data=data) as answer:
        assert (await answer.json())["response"]["allowed"] is True
    taken.append(time.perf_counter() - due)


def body() -> bytes:
    """An AdmissionReview of a job as large as people write them: some 6 kB."""
    job = ipujob().workers(4).build()
    container = job["spec"]["workers"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(60)]
    request: dict[str, Any] = {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs"},
        "namespace": "default",
        "userInfo": {"username": "ada"},
        "object": job,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": request}).encode()


@contextmanager
def process(folder: Path, authority: Authority, what: str) -> Iterator[tuple[int, str]]:
    """Run `manage.py run_webhooks`, or a server that only reads and answers; its pid and URL."""
    pair = authority.issue("ipuhub-webhooks", (), (HOST,))
    for name, data in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        write_private(folder / name, data)
    port = free_port()
    environment = os.environ | {
        "IPUHUB_WEBHOOK_PORT": str(port),
        "IPUHUB_WEBHOOK_CERTIFICATE_PATH": str(folder / "tls.crt"),
        "IPUHUB_WEBHOOK_KEY_PATH": str(folder / "tls.key"),
        "IPUHUB_HEALTH_PORT": str(free_port()),
    }
    command = [sys.executable, str(ROOT / "manage.py"), "run_webhooks"]
    if what == "floor":
        command = [sys.executable, "-m", "tests.bench.webhooks_floor"]
    running = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield running.pid, f"https://{HOST}:{port}"
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(30)


async def until_up(url: str, context: ssl.SSLContext) -> float:
    """Wait for the first answer; return the seconds."""
    began = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        while True:
            try:
                async with session.post(url + VALIDATE_PATH, data=body()):
                    return time.perf_counter() - began
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def sizes(pid: int) -> str:
    """RSS and PSS of a process."""
    (size,) = sizes_below(pid).values()
    return f"{size.rss / MIB:.0f} MiB RSS, {size.pss / MIB:.0f} MiB PSS"


def percentile(values: list[float], part: float) -> float:
    """The value that `part` of all do not exceed."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
