"""glue: the HTTP response of a report's file, with facts about the report in its headers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import Http404, HttpResponseNotModified, StreamingHttpResponse
from django.utils import timezone
from django.utils.http import parse_etags

from usage.reports.csv import csv_form
from usage.reports.downloads import NoReportError, open_file
from usage.reports.making import ReportRefused, state_of
from usage.reports.ranges import stored_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from django.http.response import HttpResponseBase

    from usage.models import ReportRun
    from usage.reports.downloads import Download, Wanted

_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


def report_file(request: Any, wanted: Wanted) -> HttpResponseBase:
    """Return a month's file, or 304. Raises Http404 with the reason if there is no file."""
    try:
        state_of(wanted.month, timezone.now(), settings.REPORT_ZONE)
        download = open_file(wanted)
    except (ReportRefused, NoReportError) as error:
        raise Http404(str(error)) from error
    # What is made from the rows may be different the next time: no tag, no count of lines.
    tag = _tag(wanted, download) if download.is_fixed else None
    if tag and tag in parse_etags(request.headers.get("If-None-Match", "")):
        download.body.close()
        answer: HttpResponseBase = HttpResponseNotModified()
    else:
        answer = _streamed(download.body, download.file_name, wanted.form)
    if tag:
        answer["ETag"] = tag
        answer["X-IPUHub-Lines"] = str(download.lines)
    answer["Cache-Control"] = "private, no-cache"
    if download.digest and wanted.is_as_stored:
        answer["Repr-Digest"] = _digest_header(download.digest)
    _describe(answer, download)
    return answer


def range_file(run: ReportRun, *, excel: bool, total: bool = True) -> HttpResponseBase:
    """Return the file that a run made; `total`: with its line of totals.

    Raises Http404 with the reason if there is no file.
    """
    if not run.has_file:
        gone = "It has expired. Generate it again." if run.is_expired else run.get_state_display()
        raise Http404(f"Run {run.pk} has no file: {gone.rstrip('.')}.")
    blocks = stored_blocks(run)
    name = f"ipuhub-usage-{run.kind}-{run.begin:%Y%m%dT%H%M%SZ}-{run.end:%Y%m%dT%H%M%SZ}.csv"
    answer = _streamed(csv_form(excel=excel, total=total)(blocks), name, "csv")
    answer["Cache-Control"] = "private, no-cache"
    answer["X-IPUHub-Lines"] = str(run.lines)
    answer["X-IPUHub-Complete-Until"] = _instant(run.complete_until)
    if total and not excel:
        answer["Repr-Digest"] = _digest_header(run.digest)
    return answer


def _streamed(blocks: Iterable[bytes], name: str, form: str) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(blocks, content_type=_TYPES[form])
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["X-Accel-Buffering"] = "no"  # a proxy in front passes the first line on at once
    return answer


def _tag(wanted: Wanted, download: Download) -> str:
    """Return the tag of the bytes of a version's file."""
    made = f"{download.generated_at:%Y%m%d%H%M%S}" if download.generated_at else "empty"
    form = "excel" if wanted.excel else wanted.form
    form += "" if wanted.total else "-without-total"
    return f'"{wanted.month}.{download.version}.{made}.{wanted.key}.{form}"'


def _describe(answer: HttpResponseBase, download: Download) -> None:
    answer["X-IPUHub-Version"] = str(download.version)
    answer["X-IPUHub-State"] = download.state
    answer["X-IPUHub-Begin"] = _instant(download.first)
    answer["X-IPUHub-End"] = _instant(download.end)
    answer["X-IPUHub-Corrections"] = str(download.corrections)
    answer["X-IPUHub-Complete-Until"] = _instant(download.complete_until)
    answer["X-IPUHub-Generated-At"] = _instant(download.generated_at)
    answer["X-IPUHub-Currency"] = download.currency


def _instant(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}" if instant else "unknown"


def _digest_header(digest: str) -> str:
    return f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"
