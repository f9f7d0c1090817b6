"""Queries and server time of each page at full history: in-process, against a real PostgreSQL.

Server time covers Django's handler with middleware, templates and queries, without the network and
the WSGI server. Cluster and proxy, with 4,096 IPUs on 32 controllers, are in a process of their
own. CPU time of an answer covers all threads of this process and, apart, PostgreSQL's processes.
"""

from __future__ import annotations

import gzip
import os
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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

MOST_QUERIES, MOST_MS, MOST_KB, MOST_UNCHANGED_MS = 8, 150, 60, 10
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
    names = ("queries", "p50", "p95", "cpu", "pg cpu", "304", "304 cpu")
    print("".join(f"{name:>8}" for name in names), f"{'kB':>6} {'gz kB':>6}", end="")
    print(f"  page ({options.rounds} rounds; ms)")
    for part in PARTS:
        pages = [page.format(job=job, last=last) for page in part.pages]
        if options.only:
            pages = [page for page in pages if any(each in page for each in options.only)]
        if not pages:
            continue
        with priced(part.prices):
            print(f"{part.heading}:")
            for page in pages:
                _print_page(client, page, options.rounds)


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

    client.get(address)  # templates are compiled, plans and pages are warm
    with CaptureQueriesContext(connection) as queries:
        client.get(address)
        query_count = count_queries(queries)  # now: the log is emptied with each request
    whole, answer = _timed(client, address, rounds)
    body = b"".join(answer) if answer.streaming else answer.content
    headers = {} if address.startswith("/api/") else {"HX-Request": "true"}
    tag = client.get(address, headers=headers).headers.get("ETag", "")
    unchanged, last = _timed(client, address, rounds, {**headers, "If-None-Match": tag})
    is_html = answer.headers["Content-Type"].startswith("text/html")
    packed = len(gzip.compress(body, 6)) / 1000
    over = [
        *(["QUERIES"] if query_count > MOST_QUERIES else []),
        *(["P95"] if whole.p95 > MOST_MS else []),
        *(["SIZE"] if is_html and packed > MOST_KB else []),
        *(["304"] if last.status_code == 304 and unchanged.p50 > MOST_UNCHANGED_MS else []),
    ]
    same = f"{unchanged.p50:>8.1f}{unchanged.cpu:>8.1f}" if last.status_code == 304 else " " * 16
    status = "" if answer.status_code == 200 else f"  HTTP {answer.status_code}"
    print(
        f"{query_count:>8}{whole.p50:>8.1f}{whole.p95:>8.1f}{whole.cpu:>8.1f}{whole.database:>8.1f}"
        f"{same} {len(body) / 1000:>6.1f} {packed:>6.1f}  {address}{status}"
        f"{'  OVER: ' if over else ''}{', '.join(over)}",
        flush=True,
    )


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of answers: by the clock, and of CPU for each in this process and in
    PostgreSQL's."""

    p50: float
    p95: float
    cpu: float
    database: float


def _timed(
    client: Any, address: str, rounds: int, headers: dict[str, str] | None = None
) -> tuple[Times, Any]:
    """Ask so many times; return what it took, and the last answer."""
    times, spent, database = [], time.process_time(), _database_seconds()
    for _ in range(rounds):
        began = time.perf_counter()
        answer = client.get(address, headers=headers)
        if not answer.streaming:
            times.append((time.perf_counter() - began) * 1000)
            continue
        answer.streaming_content = [b"".join(answer)]
        times.append((time.perf_counter() - began) * 1000)
    cpu = (time.process_time() - spent) * 1000 / rounds
    found = (_database_seconds() - database) * 1000 / rounds
    p95 = sorted(times)[max(0, -(-95 * len(times) // 100) - 1)]
    return Times(statistics.median(times), p95, cpu, found), answer


def _database_seconds() -> float:
    """CPU seconds of PostgreSQL's server process with all of its own; 0 if it is not here."""
    from django.db import connection

    connection.ensure_connection()
    own = Path(f"/proc/{connection.connection.info.backend_pid}/stat")
    try:
        server = int(own.read_text().rpartition(")")[2].split()[1])
        ended = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[13:15]
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        found = sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")
        for each in children:
            with suppress(OSError):
                found += int(Path(f"/proc/{each}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0
    return found


def _setup() -> None:
    import django

    django.setup()
