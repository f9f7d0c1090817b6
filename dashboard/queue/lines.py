"""glue: lines of the queue as columns of its files and as records of the API."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from rest_framework import serializers

from dashboard.fleetqueue import KINDS
from ipuhub.api.views import CSV
from ipuhub.web.columns import Column
from ipuhub.web.exports import export

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import StreamingHttpResponse

    from dashboard.fleetqueue import Waiting


class WaitingJobSerializer(serializers.Serializer[Any]):
    """A request for IPUs. `kind`: block (a block has to come free), blocked (an older job is served
    first), soon or never. `job_uid`, `job_name`, `namespace` and `user` are empty for a job that
    the caller may not see.
    """

    position = serializers.IntegerField(help_text="0: it can never be served.")
    job_uid = serializers.CharField()
    job_name = serializers.CharField()
    namespace = serializers.CharField()
    user = serializers.CharField()
    ipus = serializers.IntegerField()
    since = serializers.DateTimeField(allow_null=True)
    kind = serializers.ChoiceField(choices=KINDS)
    reason = serializers.CharField()
    blockers = serializers.ListField(
        child=serializers.CharField(),
        help_text="UIDs of visible jobs that hold the block which can come free first.",
    )
    free_by = serializers.DateTimeField(
        allow_null=True,
        help_text="When their time limits end. Null: not all of them free their IPUs by a limit.",
    )
    typical_seconds = serializers.FloatField(
        allow_null=True,
        help_text="Median run time of the last `typical_jobs` completed jobs of its size, where no "
        "limit says when its block is free. Null: not known.",
    )
    typical_jobs = serializers.IntegerField(allow_null=True)


def record_of(line: Waiting) -> dict[str, Any]:
    """Return the fields of WaitingJobSerializer."""
    return {
        "position": line.position,
        "job_uid": line.job.uid if line.job else "",
        "job_name": line.job.name if line.job else "",
        "namespace": line.job.namespace if line.job else "",
        "user": line.job.user if line.job else "",
        "ipus": line.ipus,
        "since": line.since,
        "kind": line.kind,
        "reason": line.reason,
        "blockers": [uid for _, uid in line.blockers],
        "free_by": line.free_by,
        "typical_seconds": line.typical[0] if line.typical else None,
        "typical_jobs": line.typical[1] if line.typical else None,
    }


def _field(name: str, column: str = "") -> Column:
    return Column(column or name, "", itemgetter(name), kind="export")


COLUMNS: Final = (
    _field("position"),
    _field("job_name", "job"),
    *map(_field, ("namespace", "user", "ipus", "since", "kind", "reason")),
    Column("blockers", "", lambda record: " ".join(record["blockers"]), "export"),
    *map(_field, ("free_by", "typical_seconds", "typical_jobs", "job_uid")),
)
"""Of the CSV, from records."""
_FIELDS: Final = tuple(map(_field, WaitingJobSerializer().fields))


def queue_file(form: str, lines: Iterable[Waiting]) -> StreamingHttpResponse:
    """Return the lines as a file: as CSV, or as the API's records in JSON or JSON lines."""
    columns = COLUMNS if form == CSV else _FIELDS
    return export(form, columns, map(record_of, lines), "queue")
