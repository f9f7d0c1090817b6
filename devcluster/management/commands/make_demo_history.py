"""glue: `manage.py make_demo_history`, two months of sample history in the demo's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from devcluster.demo.history import HistoryError, HistoryWriter, Recorders, clear, longest_ended
from devcluster.demo.samples import CLUSTER, TEAMS, first_of_month_before
from ipuhub.management.demofolder import add_folder_option, demo_url, use_database
from ipuhub.recording.store import connection_arguments
from ipuhub.text import AuthorTrust
from jobs.history.recorder import JobRecorder
from partitions.history.recorder import Owner, PartitionRecorder
from usage.pods.recorder import PodRecorder
from usage.prober import owners_of, recorded_jobs

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

_GROUPS = {team.namespace: team.group for team in TEAMS}


class Command(BaseCommand):
    help = "Writes last and this month of sample history into the running demo, and its reports."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_folder_option(parser)
        # An older month's report would be closed with the samples in it, for ever.
        parser.add_argument(
            "--months",
            type=int,
            choices=(1, 2),
            default=2,
            help="1: only this one; default: %(default)s",
        )
        parser.add_argument(
            "--seed",
            type=int,
            default=1,
            help="the same number: the same history; default: %(default)s",
        )
        parser.add_argument("--clear", action="store_true", help="remove the sample history")

    def handle(self, *_args: Any, **options: Any) -> None:
        database = use_database(settings.DATABASE_URL or demo_url(options["dir"]))
        try:
            with psycopg.connect(**connection_arguments(database), autocommit=True) as connection:
                said = _clear(connection) if options["clear"] else _write(connection, options)
            self.stdout.write(said)
            call_command("make_usage_reports", stdout=self.stdout)
        except psycopg.OperationalError as error:
            raise CommandError(f"the demo's database does not answer: {error}") from error
        except HistoryError as error:
            raise CommandError(str(error)) from error


def sample_recorders() -> Recorders:
    """The prober's recorders, knowing the sample namespaces' groups."""
    authors = AuthorTrust(is_on=True)

    def owners(cursor: Any, jobs: Sequence[tuple[str, str]]) -> dict[str, Owner]:
        found = {uid: Owner(_GROUPS[namespace], "") for uid, namespace in jobs}
        return found | owners_of(cursor, found)

    return Recorders(
        pods=PodRecorder(recorded=recorded_jobs),
        jobs=JobRecorder(_GROUPS.__getitem__, authors),
        partitions=PartitionRecorder(settings.NAMESPACE, settings.TRACKER_CONFIGMAP, owners),
    )


def _write(connection: psycopg.Connection[Any], options: dict[str, Any]) -> str:
    end = longest_ended(timezone.now())
    begin = first_of_month_before(end, options["months"] - 1)
    writer = HistoryWriter(connection, sample_recorders(), begin, end, options["seed"])
    writer.write()
    counts = ", ".join(f"{count} {what}" for what, count in sorted(writer.counts.items()))
    return (
        f"sample history from {begin:%Y-%m-%d} to now: {counts}\n"
        f"its namespaces begin with sample-, its rows have the cluster identity {CLUSTER}; "
        "--clear removes it"
    )


def _clear(connection: psycopg.Connection[Any]) -> str:
    return f"removed {clear(connection)} rows of the sample history"
