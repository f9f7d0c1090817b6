"""PostgreSQL with fsync on and a history in it, and the web process on that: for figures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devcluster.demo.postgres import EmbeddedPostgres
from tests.fakes.freeport import free_port
from tests.fakes.postgresbinaries import chosen_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

_WITH_INDEXES = 2_000_000
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
_ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
    "IPUHUB_SECRET_KEY": "only for the bench " * 4,
    "IPUHUB_HTTPS": "off",
    "IPUHUB_LOG_LEVEL": "warning",
}


@contextmanager
def history(lifetimes: int) -> Iterator[tuple[str, Path]]:
    """Yield the URL of a database with so many lifetimes in the 60 days to NOW, and a folder."""
    os.environ.update(_ENVIRONMENT)
    with tempfile.TemporaryDirectory(prefix="ipuhub-bench-") as folder, _postgres(folder) as url:
        os.environ["DATABASE_URL"] = url
        _prepare(lifetimes)
        yield url, Path(folder)


@contextmanager
def web(*, seconds: float = 300) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yield the address of a web process with the demo's settings, and the process."""
    port = free_port()
    command = [sys.executable, "manage.py", "run_web", "--port", str(port)]
    process = subprocess.Popen(command)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + seconds
        while not _serves(address):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield address, process
    finally:
        process.terminate()
        process.wait(30)


def admin_token() -> str:
    """Return an administrator's API token."""
    from django.contrib.auth import get_user_model
    from django.utils import timezone

    from ipuhub.api.auth import make_token

    user, _ = get_user_model().objects.get_or_create(username="bench", is_staff=True)
    return make_token(user, "bench", timezone.now())[1]


def peak_mib(pid: int, *, with_children: bool = True) -> float:
    """Peak memory (VmHWM) of the process and of its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    peak = 0
    for each in (str(pid), *(children if with_children else ())):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak += int(line.split()[1])
    return peak / 1024


@contextmanager
def _postgres(folder: str) -> Iterator[str]:
    port = free_port()
    server = EmbeddedPostgres(Path(folder), port, binaries=chosen_binaries())
    server.prepare()
    process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
    try:
        while not server.is_ready():
            time.sleep(0.05)
        yield server.url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _prepare(lifetimes: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.bench.pagesdata import fill

    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor, _without_indexes(cursor, lifetimes):
        fill(cursor, pods=lifetimes, jobs=lifetimes // 20, now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


@contextmanager
def _without_indexes(cursor: Any, lifetimes: int) -> Iterator[None]:
    """Of many lifetimes, put the indexes on afterwards: one by one they would be hours of I/O."""
    if lifetimes <= _WITH_INDEXES:
        yield
        return
    cursor.execute(
        "SELECT i.indexname, i.indexdef, c.conname, pg_get_constraintdef(c.oid) FROM pg_indexes i"
        " LEFT JOIN pg_constraint c ON c.conname = i.indexname"
        " WHERE i.tablename = 'usage_podlifetime'"
    )
    indexes = cursor.fetchall()
    for name, _, constraint, _ in indexes:
        what = f"CONSTRAINT {name}" if constraint else ""
        drop = f"ALTER TABLE usage_podlifetime DROP {what}" if what else f"DROP INDEX {name}"
        cursor.execute(drop)
    # Nor are the days of each row noted: who needs day sums fills fewer lifetimes.
    cursor.execute("SET session_replication_role = replica")
    yield
    cursor.execute("SET session_replication_role = origin; SET maintenance_work_mem = '512MB'")
    for name, index, constraint, definition in indexes:
        add = f"ALTER TABLE usage_podlifetime ADD CONSTRAINT {name} {definition}"
        cursor.execute(add if constraint else index)


def _serves(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=2):
            return True
    except OSError:
        return False
