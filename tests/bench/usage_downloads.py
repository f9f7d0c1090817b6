"""Latency of the API while many people download a month's details, beside an idle server.

The web process has the demo's settings. The downloaders are a separate process; each starts again
when its file is complete, and retries after `Retry-After` when it is refused.
"""

from __future__ import annotations

import http.client
import multiprocessing
import statistics
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from tests.bench.metered import NOW, admin_token, history, peak_mib, web

if TYPE_CHECKING:
    import argparse

_REQUESTS = (
    "/healthz",
    "/api/v1/usage/reports",
    "/api/v1/usage/summary?month=2026-10&by=group",
    "/api/v1/usage/lifetimes?group=group-1",
)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    with history(options.lifetimes):
        from usage.reports.making import make_month
        from usage.sums.rollups import refresh
        from usage.time.windows import Month

        make_month(Month(2026, 10), NOW, ZoneInfo("UTC"))
        refresh(NOW, ZoneInfo("UTC"))
        token = admin_token()
        with web() as (address, process):
            print(f"{options.clients} downloads of the details, {options.rounds} rounds")
            for _ in range(options.rounds):
                _round(address, token, options)
            print(f"peak RSS of web {peak_mib(process.pid):.0f} MiB")


def _round(address: str, token: str, options: argparse.Namespace) -> None:
    idle = _latencies(address, token, options.seconds / 4)
    context = multiprocessing.get_context("spawn")
    stop, tally = context.Event(), context.Queue()
    target = f"{address}/api/v1/usage/reports/2026-10/details.csv"
    crowd = context.Process(
        target=_download_all, args=(target, token, options.clients, stop, tally)
    )
    crowd.start()
    tally.get()  # all are at it
    busy = _latencies(address, token, options.seconds)
    stop.set()
    done, refused, mib, errors = tally.get()
    crowd.join()
    print(f"whole files {done}, refused with 503 {refused}, {mib:.0f} MiB, errors {errors}")
    for path in _REQUESTS:
        print(f"  {path:<50} idle {_said(idle[path])}   busy {_said(busy[path])}", flush=True)


def _said(times: list[float]) -> str:
    if len(times) < 2:
        return f"{len(times)} answers"
    p95 = statistics.quantiles(times, n=20, method="inclusive")[-1]
    return f"p50 {statistics.median(times):6.1f} p95 {p95:6.1f} ms of {len(times)}"


def _latencies(address: str, token: str, seconds: float) -> dict[str, list[float]]:
    """Return milliseconds by path; what had no answer in 20 s counts as 20 s."""
    found: dict[str, list[float]] = {path: [] for path in _REQUESTS}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for path in _REQUESTS:
            began = time.perf_counter()
            try:
                connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
                connection.request("GET", path, headers=_headers(token))
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, (path, answer.status)
            except TimeoutError:
                pass
            finally:
                connection.close()
            found[path].append((time.perf_counter() - began) * 1000)
    return found


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Connection": "close"}


def _download_all(target: str, token: str, clients: int, stop: Any, tally: Any) -> None:
    counts = [0, 0, 0.0, 0]
    lock = threading.Lock()

    def add(place: int, amount: float) -> None:
        with lock:
            counts[place] += amount

    def one() -> None:
        request = urllib.request.Request(target, headers=_headers(token))
        while not stop.is_set():
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    while not stop.is_set() and (block := answer.read1(1 << 18)):
                        add(2, len(block) / 2**20)
                    add(0, 0 if stop.is_set() else 1)
            except urllib.error.HTTPError as error:
                add(1 if error.code == 503 else 3, 1)
                stop.wait(float(error.headers.get("Retry-After", 1)))
            except (OSError, http.client.HTTPException):
                add(3, 1)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    tally.put("begun")
    stop.wait()
    for thread in threads:
        thread.join(5)
    tally.put(tuple(counts))
