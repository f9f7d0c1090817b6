"""glue: requests for runs of reports, with their entries in the audit.

The entry is `sent` from before the run is stored; the end of the run is its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.utils import timezone

from ipuhub.web.audit import FAILED, REFUSED, REPORT, SENT, AuditEvent, answer, record
from usage.models import MonthReport, ReportState
from usage.reports.making import ReportRefused
from usage.reports.runs import BrokerAway, ask_for_range, ask_for_run, note_outcome
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.web.audit import Author
    from usage.models import ReportRun
    from usage.reports.ranges import RangeFile

_GENERATE: Final = "generate"


def ask_for_month(author: Author, month: str = "", *, close: bool = False) -> ReportRun:
    """Queue the run that makes the report of a month, or all that are due, or closes a month.

    Raises MonthError, ReportRefused and BrokerAway.
    """
    now = timezone.now()
    if month:
        Month.parse(month)
    return _recorded(
        author,
        event_of(month, close=close),
        lambda: ask_for_run(author.name, now, month, close=close),
    )


def ask_for_file(author: Author, file: RangeFile) -> ReportRun:
    """Queue the run that makes the file of a range. Raises BrokerAway."""
    now = timezone.now()
    covers = f"{file.covers.first:%Y-%m-%d} to {file.covers.end:%Y-%m-%d}"
    fields = [("kind", None, file.kind), ("profile", None, file.profile)]
    event = AuditEvent(REPORT, _GENERATE, covers, fields=fields)
    return _recorded(author, event, lambda: ask_for_range(file, author.name, now))


def event_of(month: str, *, close: bool) -> AuditEvent:
    """Return what a run of months does, as the audit has it."""
    if not close:
        return AuditEvent(REPORT, _GENERATE, month or "due months")
    known = MonthReport.objects.filter(month=month, number=0).order_by("-version")
    before = known.values_list("state", flat=True).first()
    return AuditEvent(REPORT, "close", month, fields=[("state", before, ReportState.CLOSED.value)])


def _recorded(author: Author, event: AuditEvent, ask: Callable[[], ReportRun]) -> ReportRun:
    entry = record(author, event, SENT)
    try:
        run = ask()
    except ReportRefused as error:
        answer(entry, REFUSED, str(error))
        raise
    except BaseException as error:
        sentence = str(error) if isinstance(error, BrokerAway) else "The run could not be stored."
        answer(entry, FAILED, sentence)
        raise
    entry.uid = str(run.pk)
    entry.save(update_fields=["uid"])
    run.refresh_from_db()
    if run.is_over:  # before the entry knew its run
        note_outcome(run)
    return run
