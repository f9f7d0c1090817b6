"""glue: the actions of `make_usage_reports` and its progress bar."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ipuhub.web.audit import SENT, author_of_command, record
from usage.models import MonthReport, ReportRun
from usage.reports.asking import event_of
from usage.reports.downloads import Wanted, open_file
from usage.reports.making import ReportRefused
from usage.reports.ranges import RangeFile, range_of, write_blocks
from usage.reports.review import review_month
from usage.reports.runs import do_run, request_run
from usage.time.months import bad_seams, bounds_of, clock_problem
from usage.time.ranges import read_instant
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from zoneinfo import ZoneInfo

_BAR_WIDTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of the command."""

    month: str = ""
    close: bool = False
    review: bool = False
    by: str = ""
    begin: str = ""
    end: str = ""
    kind: str = "summary"
    profile: str = "default"
    form: str = "csv"
    output: str = ""
    total: bool = True


class Progress:
    """A bar on a terminal; elsewhere only the lines that stay."""

    def __init__(self, out: Any, data: Any) -> None:
        self._out, self.data = out, data
        self._bar = bool(out.isatty())
        self._drawn = ""

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._clear()
        self._out.write(line)

    def show(self, done: int, total: int, what: str) -> None:
        """Redraw the bar if it has changed."""
        share = min(1.0, done / total) if total else 0.0
        full = round(share * _BAR_WIDTH)
        bar = f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] {share:4.0%} {what}"
        if self._bar and bar != self._drawn:
            self._out.write(f"\r\x1b[K{bar}", ending="")
            self._out.flush()
            self._drawn = bar

    def _clear(self) -> None:
        if self._drawn:
            self._out.write("\r\x1b[K", ending="")
            self._drawn = ""


def carry_out(options: ReportOptions, now: datetime, zone: ZoneInfo, progress: Progress) -> None:
    """Run the command. Raises MonthError, WindowError, ReportRefused, NoReportError, OSError."""
    if options.begin or options.end:
        _write_range(options, now, zone, progress)
        return
    if options.review and (options.close or not options.month):
        raise ReportRefused("--review requires --month and cannot be combined with --close.")
    if options.output and not options.month:
        raise ReportRefused("--output requires --month, or --from and --to.")
    if options.review:
        _print_review(Month.parse(options.month), progress)
        return
    if problem := clock_problem(now):
        raise ReportRefused(problem)
    author = author_of_command("make_usage_reports", options.by)
    run = request_run("command", author.name, now, zone, options.month, close=options.close)
    event = event_of(options.month, close=options.close)
    record(author, replace(event, uid=str(run.pk)), SENT)
    for report in do_run(
        run, zone, on_step=lambda run: progress.show(run.done, len(run.months), run.message)
    ):
        progress.say(f"{report} ({report.state}): {report.lifetimes} lifetimes")
        if note := bounds_of(report).note:
            progress.say(note)
    for seam in bad_seams(MonthReport.objects.all()):
        progress.say(seam)
    if run.state != ReportRun.State.DONE:
        raise ReportRefused(run.message)
    if run.message:
        progress.say(run.message)
    if options.output:
        month, form, total = Month.parse(options.month), options.form, options.total
        wanted = Wanted(month, options.kind, options.profile, form=form, total=total)
        target = _target(options, wanted.file_name)
        download = open_file(wanted)
        _write(download.body, target, download.lines, progress)


def _print_review(month: Month, progress: Progress) -> None:
    review = review_month(month)
    progress.say(f"{review.report}, made {review.report.generated_at:%F %H:%M} UTC")
    progress.say(f"cost: {review.cost or 'no rates'}")
    for _, label, total in review.totals:
        progress.say(f"{label}: {total}")
    progress.say(f"pods: {review.pods}")
    for sentence in review.concerns or ["No gaps, no estimates, and everything has a price."]:
        progress.say(sentence)


def _write_range(options: ReportOptions, now: datetime, zone: ZoneInfo, progress: Progress) -> None:
    if options.month or options.close:
        raise ReportRefused("Specify either --month, or --from and --to.")
    if not options.begin:
        raise ReportRefused("--to requires --from, for example --from 2026-11-01.")
    if not options.output:
        raise ReportRefused("A range report is written to a file: specify --output (- for stdout).")
    begin = read_instant(options.begin, zone)
    end = read_instant(options.end, zone, end=True) if options.end else now
    covers = range_of(begin, end, now, zone, options.profile)
    file = RangeFile(covers, options.kind, options.profile, options.form, options.total)
    target = _target(options, file.name)
    _write(file.open(), target, file.expected_lines(), progress)


def _target(options: ReportOptions, name: str) -> Path | None:
    """Return where to write; None: to stdout. Raises ReportRefused."""
    if options.output == "-":
        return None
    target = Path(options.output)
    target = target / name if target.is_dir() else target
    if not target.parent.is_dir():
        raise ReportRefused(f"Folder {target.parent} does not exist. Create it first.")
    return target


def _write(blocks: Iterable[bytes], target: Path | None, expected: int, progress: Progress) -> None:
    if target is None:
        _to_stdout(blocks, progress.data)
        return
    began = timezone.now()
    write_blocks(blocks, target, lambda lines: progress.show(lines, expected, f"{lines} lines"))
    took = (timezone.now() - began).total_seconds()
    progress.say(f"{target}: {target.stat().st_size} bytes in {took:.1f} s")


def _to_stdout(blocks: Iterable[bytes], data: Any) -> None:
    raw = getattr(data, "_out", sys.stdout)
    binary = getattr(raw, "buffer", None)
    for block in blocks:
        if binary is not None:
            binary.write(block)
        else:
            raw.write(block.decode())
    if binary is not None:
        binary.flush()
