"""glue: the report of any range, computed for each request and not stored."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from django.conf import settings
from django.db import connection
from django.db.models import Max
from django.utils import timezone

from usage.models import RunChunk
from usage.rates.pricing import Pricing, Tariff
from usage.reading import pricing_at
from usage.reports.columns import PROFILES, header
from usage.reports.csv import CHUNK_BYTES, IN_ORDER, CsvStream, copy_all, csv_form, json_lines
from usage.reports.downloads import own_connection
from usage.reports.making import ReportRefused
from usage.reports.monthly import Range, details_queries, range_summary_sql
from usage.retention.purged import PurgedError, refuse_purged
from usage.sums.engine import HASHED
from usage.sums.pieces import closed_steps
from usage.time.windows import PARTITION_PIECES, POD_PIECES, Window, WindowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.models import ReportRun

KINDS: Final = ("summary", "details")


@dataclass(frozen=True, slots=True)
class RangeFile:
    """A file to make: its range, kind, profile, and the form csv or jsonl."""

    covers: Range
    kind: str
    profile: str = "default"
    form: str = "csv"
    total: bool = True

    @property
    def overhead_lines(self) -> int:
        """Return the number of lines beside the data: the header and the totals."""
        return 2 if self.total and PROFILES[self.profile].has_total else 1

    @property
    def name(self) -> str:
        """Return the file name for the client."""
        days = f"{self.covers.first:%Y%m%dT%H%M%SZ}-{self.covers.end:%Y%m%dT%H%M%SZ}"
        owner = "PrimeHub_Usage" if self.profile == "primehub" else "ipuhub-usage"
        return f"{owner}-{self.kind}-{days}.{self.form}"

    def open(self) -> CsvStream:
        """Begin the file, in one snapshot, over a connection of its own."""
        profile, covers = PROFILES[self.profile], self.covers
        own = own_connection()
        try:
            own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            own.read_only = True
            if self.kind == "summary":
                own.execute(HASHED)
                queries: tuple[str, ...] = (range_summary_sql(profile, covers),)
                parameters = covers.beside_reports.parameters
            else:
                own.execute(IN_ORDER)
                queries, parameters = details_queries(profile, covers), covers.parameters
            blocks = copy_all(own, queries, parameters)
        except BaseException:
            own.close()
            raise
        form = json_lines if self.form == "jsonl" else csv_form(excel=False, total=self.total)
        return CsvStream(own, header(getattr(profile, self.kind)), blocks, form)

    def expected_lines(self) -> int:
        """Return about how many lines the details have; 0 for a summary, which comes at once."""
        if self.kind == "summary":
            return 0
        query = f"SELECT count(*) FROM ({POD_PIECES}) AS pods"  # noqa: S608
        if PROFILES[self.profile].with_partitions:
            query = f"SELECT ({query}) + (SELECT count(*) FROM ({PARTITION_PIECES}) AS held)"  # noqa: S608
        with connection.cursor() as cursor:
            cursor.execute(query, self.covers.parameters)
            return int(cursor.fetchone()[0])


def range_of(
    begin: datetime, end: datetime, now: datetime, zone: ZoneInfo, profile: str = "default"
) -> Range:
    """Return the range of the report of [begin, end), up to now.

    The summary takes the cost of closed months that lie in it as a whole from their reports, for
    the rest of a closed month it uses the prices of that month. Raises ReportRefused if the range
    is reversed or in the future, if its records were deleted, or if its prices are in several
    currencies.
    """
    try:
        window = Window.of(begin, end, now)
        refuse_purged(window.begin, zone)
    except (WindowError, PurgedError) as error:
        raise ReportRefused(str(error)) from error
    if window.begin >= now:
        raise ReportRefused(f"The range begins ({window.begin:%FT%TZ}) after now.")
    label = f"{window.begin:%FT%TZ}/{window.end:%FT%TZ}"
    pricing = Pricing()
    if PROFILES[profile].has_cost:
        pricing = pricing_at(window.begin, window.until, zone)
        _refuse_currencies(pricing)
    money = Tariff(pricing.currency or settings.REPORT_CURRENCY, pricing.decimals)
    made = now.replace(microsecond=0)
    covers = Range(label, zone.key, window.begin, window.end, made, money, pricing.usable)
    closed = closed_steps(pricing, [window.begin], window.until)
    if closed is None:
        return covers
    beside = closed.priced_by_reports(pricing).usable
    return replace(covers, segments_beside=beside, closed=tuple(closed.months))


def _refuse_currencies(pricing: Pricing) -> None:
    if change := pricing.currency_change:
        before, instant, after = change
        raise ReportRefused(
            f"The range has prices in {before} until {instant:%FT%TZ} and in {after} after it:"
            " different currencies cannot be added. Request one range up to that time and "
            "another range from then on."
        )


def write_blocks(
    blocks: Iterable[bytes], target: Path, on_lines: Callable[[int], None] = lambda _: None
) -> None:
    """Write a file completely or not at all: under another name first, then renamed.

    `on_lines` is called with the number of lines so far. Raises OSError.
    """
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            lines = 0
            for block in blocks:
                out.write(block)
                lines += block.count(b"\n")
                on_lines(lines)
            out.flush()
            os.fsync(out.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # as any file that a program makes, not mkstemp's
        Path(temporary).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def store_range(run: ReportRun, file: RangeFile) -> None:
    """Store the file in pieces with `run`, and report its progress."""
    run.lines = file.expected_lines()
    run.save(update_fields=["lines"])
    digest, held, written = hashlib.sha256(), bytearray(), 0
    number = 0
    for block in file.open():
        digest.update(block)
        held += block
        written += block.count(b"\n")
        if len(held) >= CHUNK_BYTES:
            _store(run, number, held, written)
            number, held = number + 1, bytearray()
    _store(run, number, held, written)
    run.digest, run.lines = digest.hexdigest(), max(0, written - file.overhead_lines)
    run.done = run.lines


def _store(run: ReportRun, number: int, data: bytearray, written: int) -> None:
    RunChunk.objects.create(run=run, number=number, data=bytes(data))
    run.done = max(0, written - 1)
    run.message = "writing"
    run.save(update_fields=["done", "message"])


def stored_blocks(run: ReportRun) -> Iterator[bytes]:
    """Yield the pieces of the file that `run` made, one at a time."""
    last = run.chunks.aggregate(last=Max("number"))["last"]
    for number in range(0 if last is None else last + 1):
        yield bytes(run.chunks.get(number=number).data)


def delete_expired(now: datetime | None = None) -> int:
    """Delete the files of runs whose time is over; return how many pieces they had."""
    expired = RunChunk.objects.filter(run__expires_at__lte=now or timezone.now())
    return expired.delete()[0]
