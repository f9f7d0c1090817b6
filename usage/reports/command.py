"""glue: the actions of `make_usage_reports` and its progress bar."""

from __future__ import annotations

import getpass
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from usage.models import MonthReport, ReportRun
from usage.reports.downloads import Wanted, open_file
from usage.reports.making import ReportRefused
from usage.reports.ranges import RangeFile, range_of, write_blocks
from usage.reports.review import review_month
from usage.reports.runs import do_run, request_run
from usage.time.months import bad_seams, bounds_of
from usage.time.ranges import read_instant
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from zoneinfo import ZoneInfo

_BAR_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Asked:
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


def carry_out(asked: Asked, now: datetime, zone: ZoneInfo, progress: Progress) -> None:
    """Run the command. Raises MonthError, WindowError, ReportRefused, NoReportError, OSError."""
    if asked.begin or asked.end:
        _write_range(asked, now, zone, progress)
        return
    if asked.review and (asked.close or not asked.month):
        raise ReportRefused("--review requires --month and cannot be combined with --close.")
    if asked.output and not asked.month:
        raise ReportRefused("--output requires --month, or --from and --to.")
    if asked.review:
        _print_review(Month.parse(asked.month), progress)
        return
    run = request_run("command", _recorded_name(asked), now, zone, asked.month, close=asked.close)
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
    if asked.output:
        month, form, total = Month.parse(asked.month), asked.form, asked.total
        wanted = Wanted(month, asked.kind, asked.profile, form=form, total=total)
        target = _target(asked, wanted.file_name)
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


def _recorded_name(asked: Asked) -> str:
    """Return the name to record: the given name, or else the user who runs the command."""
    if asked.by:
        return asked.by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has a number only
        return f"uid {os.getuid()}"


def _write_range(asked: Asked, now: datetime, zone: ZoneInfo, progress: Progress) -> None:
    if asked.month or asked.close:
        raise ReportRefused("Specify either --month, or --from and --to.")
    if not asked.begin:
        raise ReportRefused("--to requires --from, for example --from 2026-11-01.")
    if not asked.output:
        raise ReportRefused("A range report is written to a file: specify --output (- for stdout).")
    begin = read_instant(asked.begin, zone)
    end = read_instant(asked.end, zone, end=True) if asked.end else now
    covers = range_of(begin, end, now, zone, asked.profile)
    file = RangeFile(covers, asked.kind, asked.profile, asked.form, asked.total)
    target = _target(asked, file.name)
    _write(file.open(), target, file.expected_lines(), progress)


def _target(asked: Asked, name: str) -> Path | None:
    """Return where to write; None: to stdout. Raises ReportRefused."""
    if asked.output == "-":
        return None
    target = Path(asked.output)
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
