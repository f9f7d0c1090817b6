"""glue: `manage.py make_usage_reports`: makes due reports, one month's report, or the file of a
range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.process import logs
from usage.reports.columns import PROFILES
from usage.reports.command import Progress, ReportOptions, carry_out
from usage.reports.csv import FORMATS
from usage.reports.downloads import NoReportError
from usage.reports.making import ReportRefused
from usage.reports.ranges import KINDS
from usage.time.windows import MonthError, WindowError

if TYPE_CHECKING:
    from argparse import ArgumentParser

_REFUSALS = (MonthError, WindowError, ReportRefused, NoReportError, OSError)


class Command(DatabaseCommand):
    needs_usage = True
    help = (
        "Generates the usage reports of this and last month, closes older months and corrects "
        "closed months. Can also generate the report of a single month, or write a file of any "
        "range."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--month", default="", help="only this month: YYYY-MM")
        parser.add_argument(
            "--close", action="store_true", help="close that month, if it has ended"
        )
        parser.add_argument(
            "--from", dest="begin", default="", help="begin of a range: a day, or RFC 3339"
        )
        parser.add_argument(
            "--to", dest="end", default="", help="last day or end of the range; default: now"
        )
        parser.add_argument(
            "--kind",
            choices=KINDS,
            default="summary",
            help="file to write; default: %(default)s",
        )
        parser.add_argument(
            "--profile",
            choices=sorted(PROFILES),
            default="default",
            help="columns: IPUHub's or PrimeHub Usage's",
        )
        parser.add_argument(
            "--format", dest="form", choices=FORMATS, default="csv", help="default: %(default)s"
        )
        parser.add_argument(
            "--review",
            action="store_true",
            help="list what to check before the month is closed; changes nothing",
        )
        parser.add_argument(
            "--by", default="", help="name recorded as the author; default: the current system user"
        )
        parser.add_argument(
            "--no-total",
            dest="total",
            action="store_false",
            help="leave out the line of totals, the last line of the CSV",
        )
        parser.add_argument("--output", default="", help="a file, a folder, or - for stdout")

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        report_options = ReportOptions(**{name: options[name] for name in ReportOptions.__slots__})
        out = self.stderr if report_options.output == "-" else self.stdout
        try:
            carry_out(
                report_options, timezone.now(), settings.REPORT_ZONE, Progress(out, self.stdout)
            )
        except _REFUSALS as error:
            raise CommandError(str(error)) from None
