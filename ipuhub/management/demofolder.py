"""glue: commands that find the demo of this machine and its database, and a progress bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils.module_loading import import_string

from ipuhub.database import NO_DATABASE, database_settings
from ipuhub.management import require_usage

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Mapping
    from types import TracebackType

    from django.core.management.base import OutputWrapper


def add_folder_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        type=Path,
        default=settings.DEMO_FOLDER,
        help="folder of the demo's state; default: %(default)s",
    )


def demo_ports(directory: Path) -> dict[str, int]:
    """Return where the parts of the demo in `directory` listen. Raises CommandError without a
    demo."""
    ports = directory / "ports.json"
    if not ports.exists():
        raise CommandError(
            f"no demo found in {directory}: start a demo with make demo, name its folder with "
            "--dir, or set DATABASE_URL"
        )
    found: dict[str, int] = json.loads(ports.read_text(encoding="ascii"))
    return found


def demo_url(directory: Path) -> str:
    """DATABASE_URL of the demo in `directory`. Raises CommandError when there is none."""
    url_of = import_string(settings.DEMO_DATABASE_URL)
    return str(url_of(directory / "postgres", demo_ports(directory)["PostgreSQL"]))


def use_database(url: str) -> Mapping[str, Any]:
    """Let Django use the database at `url` from now on; return its settings."""
    database = database_settings(url)
    settings.DATABASES["default"].update(database)
    connections["default"].settings_dict.update(database)
    return database


class DatabaseCommand(BaseCommand):
    """Base of commands for people: without DATABASE_URL they use the demo of this machine."""

    dashboard = ""
    """Where that demo's dashboard is; empty: DATABASE_URL is set."""
    needs_usage = False
    """Refuse to run where usage is switched off, before a database is looked for."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_folder_option(parser)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Find the database, then do the work. Raises CommandError where there is none."""
        directory = options["dir"]
        if self.needs_usage:
            require_usage()
        if connections["default"].settings_dict["NAME"] == NO_DATABASE:
            use_database(demo_url(directory))
            self.dashboard = f"http://localhost:{demo_ports(directory)['web']}"
        return super().execute(*args, **options)


_CELLS = 30


class ProgressBar:
    """Context manager that shows a progress bar and clears it at the end."""

    def __init__(self, out: OutputWrapper, noun: str) -> None:
        self._out, self._noun = out, noun
        self._is_shown = out.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._write("\r\033[K")

    def show(self, done: int, total: int) -> None:
        if not self._is_shown:
            return
        filled = _CELLS * done // total if total else _CELLS
        bar = "#" * filled + "." * (_CELLS - filled)
        self._write(f"\r[{bar}] {done:,} of {total:,} {self._noun}\033[K")

    def _write(self, text: str) -> None:
        self._out.write(text, ending="")
        self._out.flush()
