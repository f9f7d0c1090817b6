"""glue: `manage.py purge_usage`: deletes rows older than the retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone

from ipuhub.management.demofolder import DatabaseCommand, ProgressBar
from usage.retention.purging import PurgeRefused, count, make_plan, purge, retention
from usage.time.months import clock_problem

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    needs_usage = True
    help = (
        "Deletes lifetimes, gaps and faults that are older than the USAGE_RETENTION_* settings "
        "allow. Daily totals and reports are kept."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="only print what would be deleted"
        )

    def handle(self, **options: Any) -> None:
        now, zone = timezone.now(), settings.REPORT_ZONE
        plan = make_plan(now, zone, retention())
        for reason in plan.reasons:
            self.stdout.write(reason)
        if not plan.steps and not plan.reasons:
            self.stdout.write("Everything is kept forever: USAGE_RETENTION_MONTHS is 0.")
            return
        if options["dry_run"]:
            self._tell(plan, count(plan))
            return
        if problem := clock_problem(now):
            raise CommandError(problem)
        try:
            with ProgressBar(self.stderr, "rows") as bar:
                state = purge(plan, now, zone, bar.show)
        except PurgeRefused as error:
            raise CommandError(str(error)) from None
        if state is None:
            self.stdout.write(
                "Nothing was deleted: nothing is old enough, or another purge is running."
            )
            return
        self._tell(plan, state.counts)

    def _tell(self, plan: Any, counts: dict[str, int]) -> None:
        for kind, before in plan.steps:
            number = counts.get(kind.name, 0)
            self.stdout.write(
                f"{number:,} {kind.name} that ended before {before:%Y-%m-%d %H:%M} UTC"
            )
