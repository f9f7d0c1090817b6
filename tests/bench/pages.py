"""Queries and server time of each page at full history: in-process, against a real PostgreSQL.

Server time covers Django's handler with middleware, templates and queries, without the network and
the WSGI server. Cluster and proxy, with 4,096 IPUs, are in a process of their own.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devcluster.demo.postgres import EmbeddedPostgres
from tests.bench.largefleet import large_fleet
from tests.fakes.freeport import free_port
from tests.fakes.postgresbinaries import chosen_binaries

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from django.test import Client

MOST_QUERIES, MOST_MS = 8, 150
JOB = (
    "(SELECT uid FROM jobs_jobrecord ORDER BY created_at DESC LIMIT 1"
    " OFFSET (SELECT least(1000, count(*) - 1) FROM jobs_jobrecord))"
)


def run(options: argparse.Namespace) -> None:
    """Fill a database, or use the database in DATABASE_URL as it is, and print a line for each
    page."""
    configure()
    if os.environ.get("DATABASE_URL"):
        _setup()
        with large_fleet():
            _measure(options)
        return
    with filled(options), large_fleet():
        _measure(options)


def configure() -> None:
    """Set what Django and processes that are started need besides a database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipuhub.settings")
    os.environ.setdefault("IPUHUB_SECRET_KEY", "only for the bench " * 4)
    os.environ["IPUHUB_HTTPS"] = "0"
    os.environ["IPUHUB_API_REQUESTS_PER_MINUTE"] = "0"


@contextmanager
def filled(options: argparse.Namespace) -> Iterator[None]:
    """Let DATABASE_URL name a filled database until the end, and set Django up with it."""
    with _folder(options) as folder, _postgres(folder) as url:
        os.environ["DATABASE_URL"] = url
        _prepare(options, folder / f"filled-{options.lifetimes}-{options.jobs}")
        yield


@contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder of the database: kept, or removed afterwards."""
    if options.database:
        yield options.database.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="ipuhub-bench-") as name:
        yield Path(name)


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    port = free_port()
    server = EmbeddedPostgres(folder, port, durable=False, binaries=chosen_binaries())
    server.prepare()
    process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
    try:
        while not server.is_ready():
            time.sleep(0.05)
        yield server.url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _prepare(options: argparse.Namespace, filled: Path) -> None:
    """Fill the database, unless `filled` says that it is; then sum what is not summed."""
    _setup()
    from django.core.management import call_command
    from django.db import connection
    from django.utils import timezone

    from tests.bench.pagesdata import fill, fill_year
    from usage.sums.rollups import refresh
    from usage.time.months import usage_zone
    from usage.utilization import rollups as utilization

    call_command("migrate", verbosity=0)
    began, is_new = time.perf_counter(), not filled.exists()
    with connection.cursor() as cursor:
        if is_new:
            fill(cursor, pods=options.lifetimes, jobs=options.jobs, now=timezone.now())
            print(f"{options.lifetimes:,} lifetimes in {time.perf_counter() - began:.1f} s")
            filled.touch()
        began = time.perf_counter()
        days = refresh(timezone.now(), usage_zone())
        print(f"{days} days summed in {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        quarters = utilization.refresh(timezone.now())
        print(
            f"{quarters} quarters of an hour of utilization in {time.perf_counter() - began:.1f} s"
        )
        if is_new:
            fill_year(cursor)
        cursor.execute("VACUUM ANALYZE")


def _measure(options: argparse.Namespace) -> None:
    from django.utils import timezone

    from tests.bench.pageparts import PARTS, priced
    from usage.time.months import usage_zone
    from usage.time.windows import Month

    client, job = signed_in(), some_job()
    last = Month.of(timezone.now(), usage_zone()).previous()
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(f"{'queries':>7} {'p50 ms':>8} {'p95 ms':>8} {'kB':>6}  page ({options.rounds} rounds)")
    for part in PARTS:
        with priced(part.prices):
            print(f"{part.heading}:")
            for page in part.pages:
                _print_page(client, page.format(job=job, last=last), options.rounds)


def signed_in() -> Client:
    """Return a client of the bench's administrator."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    user, _ = get_user_model().objects.get_or_create(username="bench", is_staff=True)
    client = Client(headers={"Host": "localhost"})
    client.force_login(user)
    return client


def some_job() -> str:
    """Return the UID of a job that is neither new nor old."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {JOB}")
        found: str = cursor.fetchone()[0]
    return found


def _print_page(client: Any, address: str, rounds: int) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from tests.builders.questions import count_queries

    answer = client.get(address)  # templates are compiled, plans and pages are warm
    with CaptureQueriesContext(connection) as queries:
        client.get(address)
        query_count = count_queries(queries)  # now: the log is emptied with each request
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        answer = client.get(address)
        body = b"".join(answer) if answer.streaming else answer.content
        times.append((time.perf_counter() - began) * 1000)
    p95 = sorted(times)[max(0, -(-95 * len(times) // 100) - 1)]
    over = "  OVER" if query_count > MOST_QUERIES or p95 > MOST_MS else ""
    status = "" if answer.status_code == 200 else f"  HTTP {answer.status_code}"
    print(
        f"{query_count:>7} {statistics.median(times):>8.1f} {p95:>8.1f} {len(body) // 1024:>6}"
        f"  {address}{status}{over}",
        flush=True,
    )


def _setup() -> None:
    import django

    django.setup()
