"""glue: `manage.py run_web`: runs the dashboard.

Migrates the database to the schema of this version before it serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from ipuhub.addresses import address_of
from ipuhub.database import bounded
from ipuhub.env import port_number
from ipuhub.oidc.trust import TrustError
from ipuhub.oidc.views import provider
from ipuhub.process import logs, runtime
from ipuhub.process.runtime import until_stopped
from ipuhub.schema import migrate, once_it_answers
from ipuhub.web.statics import prepare
from ipuhub.webserver.server import Limits, ReservedThreads, WebServer
from ipuhub.webserver.waiting import serve_until, unavailable
from partitions import connections

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterator

_LOG = structlog.get_logger(__name__)
_AWAITED: Final = (
    "postgres: does not answer yet. The log of this process says why; it serves by itself once"
    " PostgreSQL answers."
)

READINESS: Final = "/readyz"
ASIDES: Final = {
    # A kubelet gives a probe seconds, and a process that says nothing is restarted.
    READINESS: ReservedThreads(2, 2.5, "postgres: does not answer"),
    "/metrics": ReservedThreads(
        4, 10.0, "The metrics are unavailable: PostgreSQL does not answer."
    ),
}
"""Paths answered outside the pool, even while all its threads are busy."""


class Command(BaseCommand):
    help = "Migrates the database and serves the dashboard."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default=settings.WEB_HOST, help="address to listen on; default: %(default)s"
        )
        parser.add_argument(
            "--port", type=port_number, default=settings.WEB_PORT, help="default: %(default)s"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        _require_secret_key()
        _require_ca_file()
        try:
            is_prepared = _prepare_or_report(options["host"], options["port"])
        except OperationalError as error:
            raise CommandError(f"the database in DATABASE_URL does not answer: {error}") from error
        if not is_prepared:
            return
        connection.close()  # the threads that serve have their own
        settings.DATABASES["default"].update(bounds(settings.DATABASES["default"]))
        with _static_folder() as folder:
            prepare(folder)
            try:
                runtime.run(_serve(options["host"], options["port"]))
            finally:
                connections.close()


def _prepare_or_report(host: str, port: int) -> bool:
    """Prepare the database, and report its outage to clients as long as it does not answer.

    Return False if the process was stopped meanwhile.
    """
    try:
        _prepare_database()
    except OperationalError:
        if not settings.DATABASE_WAIT_SECONDS:
            raise
        connection.close()
    else:
        return True

    def prepare(pause: Callable[[float], None]) -> None:
        try:
            work = partial(_prepare_database, pause)
            once_it_answers(work, settings.DATABASE_WAIT_SECONDS, pause)
        finally:
            connection.close()  # this thread's

    server = unavailable(_AWAITED, limits())
    with _listening(host, port):
        return runtime.run(serve_until(prepare, server, host, port))


def _prepare_database(pause: Callable[[float], None] = time.sleep) -> None:
    migrate(pause)
    _ensure_admin(settings.ADMIN_PASSWORD)


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[None]:
    """Name the setting where the address cannot be listened on."""
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"cannot listen on {address_of(host, port)} (set IPUHUB_WEB_PORT): {error.strerror}"
        ) from error


@contextlib.contextmanager
def _static_folder() -> Iterator[Path]:
    """Yield the folder of the static files: STATIC_ROOT, or a folder that is removed at the end."""
    if settings.STATIC_ROOT:
        yield Path(settings.STATIC_ROOT)
        return
    with tempfile.TemporaryDirectory(prefix="ipuhub-static-") as folder:
        yield Path(folder)


async def _serve(host: str, port: int) -> None:
    """Serve until the process is stopped."""
    from dashboard.live import live_reader
    from dashboard.notify.rounds import Rounds
    from ipuhub.wsgi import application

    server = WebServer(application, limits(), ASIDES, {"/healthz": "ok"})
    with _listening(host, port):
        taken = await server.start(host, port)
    _LOG.info("the dashboard serves", host=host, port=taken)
    threads = (Rounds(_prepare_database), live_reader().keeper())
    for each in threads:
        each.start()
    await until_stopped(asyncio.get_running_loop().create_future())
    await asyncio.gather(_end(server), *(asyncio.to_thread(each.stop) for each in threads))


async def _end(server: WebServer) -> None:
    """Send callers to another replica, then finish what is under way."""
    await server.leave(READINESS, settings.WEB_DRAIN_SECONDS)
    await server.stop()


def bounds(database: dict[str, Any]) -> dict[str, Any]:
    """Return the timeouts of the web process's connections, by the settings."""
    usage = settings.USAGE_QUERY_SECONDS or settings.WEB_DOWNLOAD_SECONDS
    longest = max(settings.WEB_QUERY_SECONDS, usage)
    return bounded(database, settings.WEB_QUERY_SECONDS, longest + 5)


def limits() -> Limits:
    """Return the limits of a request, by the settings."""
    return Limits(
        threads=settings.WEB_THREADS,
        connections=settings.WEB_CONNECTIONS,
        head_seconds=settings.WEB_HEAD_SECONDS,
        body_seconds=settings.WEB_BODY_SECONDS,
        body_bytes=settings.WEB_BODY_BYTES,
        queue_seconds=settings.WEB_QUEUE_SECONDS,
        unread_seconds=settings.WEB_UNREAD_SECONDS,
        answer_seconds=settings.WEB_DOWNLOAD_SECONDS,
        ahead_bytes=settings.WEB_AHEAD_MEBIBYTES * 2**20,
    )


def _require_secret_key() -> None:
    """Raise CommandError without a key; Django itself raises as soon as an empty key is read."""
    try:
        _ = settings.SECRET_KEY
    except ImproperlyConfigured as error:
        raise CommandError(
            "set IPUHUB_SECRET_KEY or IPUHUB_SECRET_KEY_FILE: 50 random characters"
        ) from error


def _require_ca_file() -> None:
    """Raise CommandError if users sign in at a provider and its CA file cannot be used."""
    try:
        if settings.OIDC_ISSUER:
            provider().load_trust()
    except TrustError as error:
        raise CommandError(str(error)) from error


def _ensure_admin(password: str) -> None:
    """Create the user admin once; an empty password means: there is an admin already, or none."""
    users = get_user_model().objects
    if password and not users.filter(username="admin").exists():
        users.create_superuser("admin", "", password)
