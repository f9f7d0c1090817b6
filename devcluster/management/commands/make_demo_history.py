"""glue: `manage.py make_demo_history`: two months of sample history in the demo's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from devcluster.demo.history import HistoryError
from devcluster.demo.recording import clear_samples, write_samples
from ipuhub.management.demofolder import add_folder_option, demo_url, use_database
from ipuhub.recording.store import connection_arguments

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Writes last and this month of sample history into the running demo, and its reports."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_folder_option(parser)
        parser.add_argument("--clear", action="store_true", help="remove the sample history")

    def handle(self, *_args: Any, **options: Any) -> None:
        database = use_database(settings.DATABASE_URL or demo_url(options["dir"]))
        try:
            with psycopg.connect(**connection_arguments(database), autocommit=True) as connection:
                result = (
                    clear_samples(connection) if options["clear"] else write_samples(connection)
                )
            self.stdout.write(result)
            call_command("make_usage_reports", stdout=self.stdout)
        except psycopg.OperationalError as error:
            raise CommandError(f"the demo's database does not answer: {error}") from error
        except HistoryError as error:
            raise CommandError(str(error)) from error
