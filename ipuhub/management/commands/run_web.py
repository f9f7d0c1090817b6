"""glue: `manage.py run_web`, the dashboard."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from ipuhub import logs
from ipuhub.migrating import migrate

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Migrates the database and serves the dashboard."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default=settings.WEB_HOST, help="address to listen on; default: %(default)s"
        )
        parser.add_argument(
            "--port", type=int, default=settings.WEB_PORT, help="default: %(default)s"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        from granian.constants import Interfaces
        from granian.server import Server

        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        _require_secret_key()
        try:
            migrate()
            _ensure_admin(settings.ADMIN_PASSWORD)
        except OperationalError as error:
            raise CommandError(f"the database in DATABASE_URL does not answer: {error}") from error
        server = Server(
            "ipuhub.wsgi:application",
            address=options["host"],
            port=options["port"],
            interface=Interfaces.WSGI,
            blocking_threads=settings.WEB_THREADS,
            websockets=False,
            log_access=False,
        )
        logging.getLogger("_granian").addFilter(_is_news)
        server.serve()


def _is_news(record: logging.LogRecord) -> bool:
    """Our threads wait for PostgreSQL or a slow reader: they may be more than there are cores."""
    return "Python threads, which seems quite high" not in record.getMessage()


def _require_secret_key() -> None:
    """Raise CommandError without one; Django itself raises as soon as an empty one is read."""
    try:
        _ = settings.SECRET_KEY
    except ImproperlyConfigured as error:
        raise CommandError(
            "set IPUHUB_SECRET_KEY or IPUHUB_SECRET_KEY_FILE: 50 random characters"
        ) from error


def _ensure_admin(password: str) -> None:
    """Create the user admin once; an empty password means: there is one already, or none."""
    users = get_user_model().objects
    if password and not users.filter(username="admin").exists():
        users.create_superuser("admin", "", password)
