"""glue: `manage.py sum_usage_days`, for a CronJob where no Celery worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone

from ipuhub.management.demofolder import DatabaseCommand, ProgressBar
from usage.sums.engine import RefreshBusy
from usage.sums.rollups import rebuild, refresh
from usage.utilization import rollups as utilization

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    needs_usage = True
    help = (
        "Computes daily totals of usage and utilization for days that have ended or changed. Run "
        "it regularly to keep pages fast."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--rebuild", action="store_true", help="recompute all days")

    def handle(self, **options: Any) -> None:
        now, zone = timezone.now(), settings.REPORT_ZONE
        if options["rebuild"]:
            try:
                with ProgressBar(self.stderr, "days") as bar:
                    days = rebuild(now, zone, bar.show)
                with ProgressBar(self.stderr, "hours") as bar:
                    refresh(now, zone, bar.show)
                with ProgressBar(self.stderr, "quarters of an hour of utilization") as bar:
                    utilization.rebuild(now, bar.show)
            except RefreshBusy as error:
                raise CommandError(str(error)) from None
        else:
            with ProgressBar(self.stderr, "hours") as bar:
                days = refresh(now, zone, bar.show)
            utilization.refresh(now)
        self.stdout.write(f"{days} day{'' if days == 1 else 's'} summed")
