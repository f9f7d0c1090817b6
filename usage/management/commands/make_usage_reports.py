"""glue: `manage.py make_usage_reports`: the reports of this and last month, or of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from ipuhub import logs
from ipuhub.months import MonthError
from usage.makereports import ReportRefused
from usage.models import ReportRun
from usage.reportruns import do_run, request_run

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Makes the usage reports of this and last month, and closes older ones."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--month", default="", help="only this one: YYYY-MM")

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        zone = settings.REPORT_ZONE
        try:
            run = request_run("command", "", timezone.now(), zone, options["month"])
        except (MonthError, ReportRefused) as error:
            raise CommandError(str(error)) from None
        for report in do_run(run, zone):
            self.stdout.write(f"{report} ({report.state}): {report.lifetimes} lifetimes")
        if run.state != ReportRun.State.DONE:
            raise CommandError(run.message)
