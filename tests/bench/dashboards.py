"""Many open dashboards at the web process of a running demo: each polls as the pages' script does.

Each reader signs in, opens the overview, and requests its part every three seconds with the ETag of
the last answer, and the header's health every 30 s. Before that, each page is measured alone.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import aiohttp

from tests.bench.pageparts import DASHBOARD

if TYPE_CHECKING:
    import argparse

PAGE_SECONDS, HEALTH_SECONDS = 3, 30
HTMX = {"HX-Request": "true"}
OWN = "/static/ipuhub/"
RANKS = (50, 95, 99)


@dataclass
class Tally:
    """Seconds of the answers, by status."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    moments: list[tuple[float, float]] = field(default_factory=list)

    async def get(
        self, session: aiohttp.ClientSession, address: str, headers: dict[str, str] | None = None
    ) -> tuple[int, str, bytes]:
        """Ask once; return status, ETag and body."""
        began = time.perf_counter()
        async with session.get(address, headers=headers) as answer:
            body = await answer.read()
        took = time.perf_counter() - began
        self.seconds.setdefault(answer.status, []).append(took)
        self.moments.append((began, took))
        return answer.status, answer.headers.get("ETag", ""), body

    def say(self, status: int) -> str:
        """Count and percentiles of one status in a line."""
        found = sorted(self.seconds.get(status, []))
        if not found:
            return f"{status}: none"
        parts = [f"p{p} {found[max(0, -(-p * len(found) // 100) - 1)] * 1000:.0f}" for p in RANKS]
        return f"{status}: {len(found)} answers, {', '.join(parts)} ms"

    def slowest(self) -> str:
        """Seconds of the slowest answer of each ten seconds, in their order."""
        first = min((began for began, _ in self.moments), default=0.0)
        found: dict[int, float] = {}
        for began, took in self.moments:
            found[int(began - first) // 10] = max(found.get(int(began - first) // 10, 0), took)
        return " ".join(f"{found[number]:.2f}" for number in sorted(found))


@dataclass
class Asked:
    """Latencies of the open dashboards' requests: the first page, their polls, the health."""

    opened: Tally = field(default_factory=Tally)
    polled: Tally = field(default_factory=Tally)
    health: Tally = field(default_factory=Tally)


def run(options: argparse.Namespace) -> None:
    """Print figures of each page alone, of a first visit, and of all dashboards together."""
    asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    password = (options.demo / "admin-password").read_text().strip()
    timeout = aiohttp.ClientTimeout(total=60)
    jar = await _signed_in(options.url, password)
    async with aiohttp.ClientSession(options.url, cookies=jar, timeout=timeout) as session:
        await _pages(session, options.rounds)
        await _first_visit(session)
    requests = Asked()
    until = time.monotonic() + options.seconds
    readers = (_read(options, jar, number, until, requests) for number in range(options.readers))
    cpu = _cpu_seconds(options.pid)
    await asyncio.gather(*readers)
    print(f"{options.readers} dashboards for {options.seconds} s:")
    for name, tally in (
        ("opened", requests.opened),
        ("polled", requests.polled),
        ("health", requests.health),
    ):
        for status in sorted(tally.seconds):
            print(f"  {name} {tally.say(status)}")
    print("  slowest answer of each ten seconds:", requests.polled.slowest())
    if cpu is not None:
        spent = (_cpu_seconds(options.pid) or cpu) - cpu
        print(f"  the web process took {100 * spent / options.seconds:.0f} % of a core")


async def _signed_in(url: str, password: str) -> dict[str, str]:
    """The cookies of a session of the demo's administrator."""
    async with aiohttp.ClientSession(url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get("/login/") as answer:
            token = re.search(r'csrfmiddlewaretoken" value="([^"]+)', await answer.text())
        assert token is not None
        form = {"username": "admin", "password": password, "csrfmiddlewaretoken": token[1]}
        async with session.post("/login/", data=form, headers={"Referer": url}) as answer:
            assert answer.status == 200
        return {cookie.key: cookie.value for cookie in session.cookie_jar}


async def _pages(session: aiohttp.ClientSession, rounds: int) -> None:
    print(
        f"{'p50 ms':>7} {'p95 ms':>7} {'304 ms':>7} {'kB':>6} {'gz kB':>6}  page alone ({rounds})"
    )
    for address in DASHBOARD:
        whole, part = Tally(), Tally()
        for _ in range(rounds):
            status, _, body = await whole.get(session, address)
        _, tag, _ = await Tally().get(session, address, HTMX)
        for _ in range(rounds):
            _, tag, _ = await part.get(session, address, HTMX | {"If-None-Match": tag})
        times, same = sorted(whole.seconds.get(200, [0])), sorted(part.seconds.get(304, []))
        p95 = times[max(0, -(-95 * len(times) // 100) - 1)]
        unchanged = f"{same[len(same) // 2] * 1000:7.1f}" if same else "      -"
        sizes = f"{len(body) / 1000:6.1f} {len(gzip.compress(body, 6)) / 1000:6.1f}"
        p50 = times[len(times) // 2]
        print(f"{p50 * 1000:7.1f} {p95 * 1000:7.1f} {unchanged} {sizes}  {address} {status}")


class _Files(HTMLParser):
    """The files that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note scripts, style sheets and pictures."""
        given = dict(attrs)
        address = given.get("src") or (given.get("href") if tag == "link" else None)
        if address:
            self.found.append(address)


async def _first_visit(session: aiohttp.ClientSession) -> None:
    """Bytes on the wire of the overview with an empty cache, and of its scripts that are ours."""
    _, _, page = await Tally().get(session, "/")
    files = _Files()
    files.feed(page.decode())
    total, scripts = len(gzip.compress(page, 6)), 0
    for address in dict.fromkeys(files.found):
        async with session.get(urljoin("/", address)) as answer:
            await answer.read()
            size = int(answer.headers.get("Content-Length", 0))
        total += size
        scripts += size if address.startswith(OWN) and address.endswith(".js") else 0
    print(f"first visit: {total / 1000:.1f} kB, own JavaScript {scripts / 1000:.1f} kB, compressed")


async def _read(
    options: argparse.Namespace, jar: dict[str, str], number: int, until: float, requests: Asked
) -> None:
    """One open overview; the first questions of all are spread over an interval."""
    await asyncio.sleep(PAGE_SECONDS * number / options.readers)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(options.url, cookies=jar, timeout=timeout) as session:
        _, _, page = await requests.opened.get(session, "/")
        tag, last_health = _tag_of(page), 0.0
        while time.monotonic() < until:
            if time.monotonic() - last_health >= HEALTH_SECONDS:
                last_health = time.monotonic()
                await requests.health.get(session, "/system/health", HTMX)
            await asyncio.sleep(PAGE_SECONDS)
            _, new, _ = await requests.polled.get(session, "/", HTMX | {"If-None-Match": tag})
            tag = new or tag


def _tag_of(page: bytes) -> str:
    """The ETag of a page's changing part, which its script sends with each poll."""
    found = re.search(r'data-etag="([^"]+)"', page.decode())
    return unescape(found[1]) if found else ""


def _cpu_seconds(pid: int | None) -> float | None:
    """CPU of a process and of those it started."""
    if pid is None:
        return None
    found = 0.0
    for each in (pid, *_children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / 100
    return found


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
