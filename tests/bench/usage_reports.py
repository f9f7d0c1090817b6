"""Month reports beside the time PostgreSQL's own `psql` needs for the same rows, in turns; medians.

Summaries: both months made and stored (aggregate, rows, sums of the files, swap) beside the same
two aggregates by COPY into files. Details: one month's file over HTTP from the web process, with a
token, beside COPY of the same SELECT with its ORDER BY, under the planner's own settings and under
the settings of the download. PostgreSQL has fsync on.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from devcluster.demo.postgres import find_binaries
from tests.bench.metered import NOW, admin_token, history, peak_mib, web
from tests.fakes.postgresbinaries import chosen_binaries

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    with history(options.lifetimes) as (url, folder):
        _summaries(options.rounds, url, folder)
        if options.summaries_only:
            return
        with web() as (address, process):
            _details(options.rounds, url, folder, address, process)


def _summaries(rounds: int, url: str, folder: Path) -> None:
    from usage.reports.making import make_month
    from usage.reports.monthly import rows_sql
    from usage.sums.engine import HASHED
    from usage.time.windows import Month

    months = [Month(2026, 10), Month(2026, 11)]
    queries = [
        _interpolated(rows_sql(_covers(month)), _covers(month).parameters) for month in months
    ]
    ours, floors, hashed = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        reports = [make_month(month, NOW, ZoneInfo("UTC")) for month in months]
        ours.append(time.perf_counter() - began)
        target = folder / "floor.csv"
        floors.append(sum(_timed_psql(url, "", query, target) for query in queries))
        hashed.append(sum(_timed_psql(url, HASHED, query, target) for query in queries))
    rows = sum(report.rows.count() for report in reports)
    known = " + ".join(f"{report.lifetimes:,}" for report in reports)
    print(f"summaries of both months, {known} lifetimes, {rows:,} rows")
    peak = peak_mib(os.getpid(), with_children=False)
    print(f"  peak RSS of the process that makes them {peak:.0f} MiB")
    _print("make and store", ours, floors)
    _print("  beside COPY with as much memory", ours, hashed)


def _details(
    rounds: int, url: str, folder: Path, address: str, web: subprocess.Popen[bytes]
) -> None:
    from usage.reports.columns import DEFAULT, PRIMEHUB
    from usage.reports.csv import IN_ORDER
    from usage.reports.monthly import details_sql
    from usage.time.windows import Month

    headers = {"Authorization": f"Bearer {admin_token()}"}
    covers = _covers(Month(2026, 10))
    for profile in (DEFAULT, PRIMEHUB):
        query = _interpolated(details_sql(profile, covers), covers.parameters)
        # COPY writes no line of totals.
        wanted = f"profile={profile.name}&total=no"
        target = f"{address}/api/v1/usage/reports/2026-10/details.csv?{wanted}"
        request = urllib.request.Request(target, headers=headers)
        before = peak_mib(web.pid)
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
        print(f"  peak RSS of web {before:.0f} -> {peak_mib(web.pid):.0f} MiB")


def _print(name: str, ours: list[float], floors: list[float]) -> None:
    ratio = statistics.median(a / b for a, b in zip(ours, floors, strict=True))
    mine, floor = statistics.median(ours), statistics.median(floors)
    print(f"  {name} {mine:.2f} s, COPY {floor:.2f} s, ratio {ratio:.2f}")


def _covers(month: Any) -> Any:
    from usage.reports.making import month_range

    return month_range(month, NOW, ZoneInfo("UTC"))


def _interpolated(query: str, parameters: dict[str, Any]) -> str:
    import psycopg

    from usage.reports.downloads import own_connection

    with own_connection() as own:
        return psycopg.ClientCursor(own).mogrify(query, parameters)


def _psql(url: str, settings: str, query: str, target: Path) -> None:
    copy = f"COPY ({query}) TO STDOUT (FORMAT csv)"
    commands = [f"BEGIN; {settings}", copy] if settings else [copy]
    arguments = [part for command in commands for part in ("-c", command)]
    psql = str((chosen_binaries() or find_binaries()) / "psql")
    with target.open("wb") as out:
        subprocess.run([psql, "-q", "-X", url, *arguments], stdout=out, check=True)


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
