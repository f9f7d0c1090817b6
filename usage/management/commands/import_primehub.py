"""glue: `manage.py import_primehub`: imports the history of PrimeHub Usage from its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone

from ipuhub.management.demofolder import DatabaseCommand, ProgressBar
from usage.legacy.importing import (
    ImportRefusedError,
    Order,
    import_usage,
    newest_cluster,
)
from usage.legacy.primehub import GPU_RESOURCE, Origin
from usage.retention.purged import purged_until
from usage.time.windows import Month

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from usage.legacy.importing import Outcome

_FAULTS: Final = {
    "import-repeated": "have several rows; the row that ended last counts",
    "quantity": "have an amount that is not a number; it counts as 0",
    "import-refused": "left out: no UID, or a time that no pod can have",
    "import-purged": "left out: they ended before the last purge",
}


class Command(DatabaseCommand):
    needs_usage = True
    help = (
        "Imports the pods of a PrimeHub Usage database. Pods that IPUHub has recorded stay as they "
        "are, so you can repeat an import. Rows that cannot be imported as they are become faults, "
        "which the dashboard lists."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--from",
            dest="url",
            default="",
            help="address of that database, postgresql://USER@HOST:5432/postgres; its password can "
            "come from PGPASSWORD; default: IPUHub's own database",
        )
        parser.add_argument(
            "-n",
            "--namespace",
            default=settings.PRIMEHUB_NAMESPACE,
            help="namespace of the pods, which that database does not store; default: "
            "PRIMEHUB_USAGE_WATCHED_NAMESPACE",
        )
        parser.add_argument(
            "--zone",
            default="",
            help="time zone in which that database stores times; default: its server's",
        )
        parser.add_argument(
            "--gpu-resource",
            default=GPU_RESOURCE,
            help="resource name of the GPUs, which that database does not store; default: "
            "%(default)s",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="only print what would be imported"
        )

    def handle(self, **options: Any) -> None:
        if not options["namespace"]:
            raise CommandError(
                "Name the namespace that PrimeHub Usage watched, with --namespace or "
                "PRIMEHUB_USAGE_WATCHED_NAMESPACE."
            )
        origin = Origin(
            options["namespace"], timezone.now(), newest_cluster(), options["gpu_resource"]
        )
        order = Order(
            origin,
            options["url"],
            options["zone"],
            purged_until(),
            write=not options["dry_run"],
        )
        try:
            with ProgressBar(self.stderr, "pods") as bar:
                outcome = import_usage(order, bar.show)
        except ImportRefusedError as error:
            raise CommandError(str(error)) from None
        self._tell(outcome, dry_run=options["dry_run"])

    def _tell(self, outcome: Outcome, *, dry_run: bool) -> None:
        say = self.stdout.write
        say(f"{outcome.rows:,} rows of {outcome.pods:,} pods; times are {outcome.zone}.")
        say(f"{outcome.imported:,} pods {'would be' if dry_run else 'were'} imported, of which")
        say(f"  {outcome.open:,} have no end: they end at their last update, estimated")
        say(f"  {outcome.never_scheduled:,} were never scheduled: they have no usage")
        say(f"{outcome.known:,} pods are recorded already and stay as they are.")
        for code, text in _FAULTS.items():
            if number := outcome.faults[code]:
                say(f"{number:,} pods {text}.")
        if outcome.began and not dry_run:
            first = Month.of(outcome.began, settings.REPORT_ZONE)
            say(f"Make the reports next: make_usage_reports --month {first}, then later months.")
