"""glue: `manage.py run_prober`: records pods, jobs and partitions of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.kube.errors import ApiError
from ipuhub.kube.leaderelection import LeadershipLost, LeaseHeld
from ipuhub.management import require_usage
from ipuhub.process.runtime import return_free_memory
from ipuhub.recording.store import Fenced
from usage.prober import list_once, run_prober

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Records pods, jobs and partitions of one cluster in PostgreSQL. Runs until SIGTERM."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="commit one full list and exit; fails while another prober holds the Lease",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        require_usage()
        return_free_memory()
        try:
            composition.run(list_once if options["once"] else run_prober, ApiError)
        except LeaseHeld as error:
            raise CommandError(
                f"{error}. That prober already records the cluster; stop it before you use --once"
            ) from error
        except LeadershipLost as error:
            raise CommandError(f"{error}. Data listed before that is kept") from error
        except Fenced as error:
            reason = (
                str(error) or "another prober took over a watch. Data listed before that is kept"
            )
            raise CommandError(reason) from error
