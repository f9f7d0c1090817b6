"""Month reports beside what PostgreSQL's own `psql` needs for the same rows, in turns; medians.

Summaries: both months made and stored (aggregate, rows, sums of the files, swap) beside the same
two aggregates by COPY into files. Details: one month's file over HTTP from the web process, with
a token, beside COPY of the same SELECT with its ORDER BY, under the planner's own settings and
under those of the download. PostgreSQL has fsync on.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ipuhub.demo.ports import choose_port
from ipuhub.demo.postgres import EmbeddedPostgres, find_binaries

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
_ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
    "IPUHUB_SECRET_KEY": "only for the bench " * 4,
    "IPUHUB_HTTPS": "off",
    "IPUHUB_LOG_LEVEL": "warning",
}


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    os.environ.update(_ENVIRONMENT)
    with tempfile.TemporaryDirectory(prefix="ipuhub-bench-") as folder, _postgres(folder) as url:
        os.environ["DATABASE_URL"] = url
        _prepare(options.lifetimes)
        _summaries(options.rounds, url, Path(folder))
        with _web() as (address, process):
            _details(options.rounds, url, Path(folder), address, process)


@contextmanager
def _postgres(folder: str) -> Iterator[str]:
    port = choose_port("PostgreSQL of the bench", 25632, set()).number
    server = EmbeddedPostgres(Path(folder), port)
    server.prepare()
    process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
    try:
        while not server.is_ready():
            time.sleep(0.05)
        yield server.url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _prepare(lifetimes: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.bench.pagesdata import fill

    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        fill(cursor, pods=lifetimes, jobs=lifetimes // 20, now=_NOW)
        cursor.execute("VACUUM ANALYZE")


def _summaries(rounds: int, url: str, folder: Path) -> None:
    from ipuhub.months import Month
    from usage.makereports import HASHED, make_month
    from usage.monthly import SUMMARY

    months = [Month(2026, 10), Month(2026, 11)]
    queries = [_interpolated(SUMMARY, _covers(month)) for month in months]
    ours, floors, hashed = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        reports = [make_month(month, _NOW, ZoneInfo("UTC")) for month in months]
        ours.append(time.perf_counter() - began)
        target = folder / "floor.csv"
        floors.append(sum(_timed_psql(url, "", query, target) for query in queries))
        hashed.append(sum(_timed_psql(url, HASHED, query, target) for query in queries))
    rows = sum(report.rows.count() for report in reports)
    known = " + ".join(f"{report.lifetimes:,}" for report in reports)
    print(f"summaries of both months, {known} lifetimes, {rows:,} rows")
    _print("make and store", ours, floors)
    _print("  beside COPY with as much memory", ours, hashed)


def _details(
    rounds: int, url: str, folder: Path, address: str, web: subprocess.Popen[bytes]
) -> None:
    from ipuhub.months import Month
    from usage.csvreport import IN_ORDER
    from usage.monthly import DEFAULT, PRIMEHUB, details_sql

    headers = {"Authorization": f"Bearer {_token()}"}
    for profile in (DEFAULT, PRIMEHUB):
        query = _interpolated(details_sql(profile), _covers(Month(2026, 10)))
        target = f"{address}/api/v1/usage/reports/2026-10/details.csv?profile={profile.name}"
        request = urllib.request.Request(target, headers=headers)
        before = _peak_mib(web.pid)
        ours, firsts, floors, ordered = [], [], [], []
        for _ in range(rounds):
            began = time.perf_counter()
            firsts.append(_download(request, folder / "ours.csv", began))
            ours.append(time.perf_counter() - began)
            floors.append(_timed_psql(url, "", query, folder / "floor.csv"))
            ordered.append(_timed_psql(url, IN_ORDER, query, folder / "floor.csv"))
        lines = (folder / "ours.csv").read_bytes().split(b"\n", 1)[1]
        assert lines == (folder / "floor.csv").read_bytes(), "the two files differ"
        count, mib = lines.count(b"\n"), len(lines) / 2**20
        print(f"details, {profile.name}: {count:,} rows, {mib:.0f} MiB")
        _print("over HTTP", ours, floors)
        _print("  beside COPY in order", ours, ordered)
        print(f"  first data row {statistics.median(firsts):.3f} s, at most {max(firsts):.3f} s")
        print(f"  peak RSS of web {before:.0f} -> {_peak_mib(web.pid):.0f} MiB")


def _print(name: str, ours: list[float], floors: list[float]) -> None:
    ratio = statistics.median(a / b for a, b in zip(ours, floors, strict=True))
    mine, floor = statistics.median(ours), statistics.median(floors)
    print(f"  {name} {mine:.2f} s, COPY {floor:.2f} s, ratio {ratio:.2f}")


def _covers(month: Any) -> dict[str, Any]:
    from usage.monthly import Range

    zone = ZoneInfo("UTC")
    return Range(str(month), "UTC", month.first(zone), month.end(zone), _NOW).parameters


def _interpolated(query: str, parameters: dict[str, Any]) -> str:
    import psycopg

    from usage.downloads import own_connection

    with own_connection() as own:
        return psycopg.ClientCursor(own).mogrify(query, parameters)


def _psql(url: str, settings: str, query: str, target: Path) -> None:
    copy = f"COPY ({query}) TO STDOUT (FORMAT csv)"
    commands = [f"BEGIN; {settings}", copy] if settings else [copy]
    arguments = [part for command in commands for part in ("-c", command)]
    with target.open("wb") as out:
        subprocess.run(
            [str(find_binaries() / "psql"), "-q", "-X", url, *arguments], stdout=out, check=True
        )


def _timed_psql(url: str, settings: str, query: str, target: Path) -> float:
    began = time.perf_counter()
    _psql(url, settings, query, target)
    return time.perf_counter() - began


def _download(request: urllib.request.Request, target: Path, began: float) -> float:
    """Store the file; return when the first row after the header had arrived."""
    first, head = 0.0, b""
    with urllib.request.urlopen(request) as answer, target.open("wb") as out:
        while block := answer.read1(1 << 16):
            out.write(block)
            if not first:
                head += block
                if head.count(b"\n") > 1:
                    first = time.perf_counter() - began
    return first


def _token() -> str:
    from django.contrib.auth import get_user_model
    from django.utils import timezone

    from ipuhub.tokens import make_token

    user, _ = get_user_model().objects.get_or_create(username="bench", is_staff=True)
    return make_token(user, "bench", timezone.now())[1]


@contextmanager
def _web() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = choose_port("web of the bench", 25700, set()).number
    command = [sys.executable, "manage.py", "run_web", "--port", str(port)]
    process = subprocess.Popen(command)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not _serves(address):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield address, process
    finally:
        process.terminate()
        process.wait(30)


def _serves(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=2):
            return True
    except OSError:
        return False


def _peak_mib(pid: int) -> float:
    """Peak memory of the process and of its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    peak = 0
    for each in (str(pid), *children):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak += int(line.split()[1])
    return peak / 1024
