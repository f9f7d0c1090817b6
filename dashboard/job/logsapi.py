"""glue: logs of a job's pods in the API, as text and JSON lines, streamed without a size limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException, ValidationError

from dashboard.job.loglines import AsJson, AsText, KeptLines
from dashboard.job.logreader import LogProblem, containers_now, stream_lines
from dashboard.job.logs import find_pod, ref_of, require_logs, require_own_job, stored_attempt
from ipuhub.api.files import read_yes
from ipuhub.api.kinds import CONTENT_TYPE
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.schema import ProblemSerializer
from ipuhub.api.views import PlainView
from ipuhub.kube.podlogs import LogRequest
from ipuhub.web.access import is_admin
from ipuhub.web.filters import InstantField

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from django.http import HttpResponse
    from rest_framework.request import Request

    from dashboard.job.logreader import ContainerNow
    from usage.models import PodLifetime

_MOST_DIGITS = 9
_TEXT, _LINES = "text/plain", "application/x-ndjson"
_PARAMETERS = [
    OpenApiParameter(
        "pod", str, description="UID or name of the pod. Default: the newest launcher."
    ),
    OpenApiParameter("container", str, description="Default: the pod's first container."),
    OpenApiParameter(
        "previous", bool, description="Log of the run before the last restart.", default=False
    ),
    OpenApiParameter(
        "tail_lines",
        {"type": "integer", "minimum": 1, "maximum": 10**_MOST_DIGITS - 1},
        description="Only so many of the newest lines. Default: all.",
    ),
    OpenApiParameter(
        "since",
        OpenApiTypes.DATETIME,
        description="Only lines written in the second of this instant or later.",
    ),
    OpenApiParameter(
        "timestamps", bool, description="Text: the time before each line.", default=False
    ),
]
_SOURCE = OpenApiParameter(
    "X-Log-Source",
    str,
    OpenApiParameter.HEADER,
    response=[200],
    description="`live`: from the cluster. `kept`: the pod is gone, and these are the last lines "
    "of the container that failed, as the operator kept them.",
)
_NOT_YET = {
    (409, CONTENT_TYPE): OpenApiResponse(
        ProblemSerializer, "The container has not started, or was not restarted."
    )
}


class NoLog(APIException):
    """There is no log; the sentence says why."""

    def __init__(self, problem: LogProblem, *, in_full: bool) -> None:
        super().__init__(problem.sentence(in_full=in_full))
        self.default_code, self.status_code = problem.kind, problem.status


class JobLogs(PlainView):
    """The log of a container of a job's pod."""

    parameters = frozenset({"container", "pod", "previous", "since", "tail_lines", "timestamps"})
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="jobs_logs",
        summary="A job's log",
        tags=["jobs"],
        parameters=[*_PARAMETERS, _SOURCE],
        responses={
            (200, _TEXT): OpenApiTypes.STR,
            (200, _LINES): OpenApiTypes.STR,
            **_NOT_YET,
        },
    )
    def get(self, request: Request, uid: str) -> Any:
        """The log of a container of a job's pod, as far as its node still has it: as text or, with
        `Accept: application/x-ndjson`, as JSON lines with `time` and `text`. A JSON line holds at
        most 16 KiB of text; `continues`: the next line has the rest. Raises Http404,
        ValidationError, NoLog."""
        require_logs()
        is_json = _requests_json(request)
        stamped = read_yes(request, "timestamps")
        previous, tail = read_yes(request, "previous"), _read_tail(request)
        since = _read_since(request)
        job = require_own_job(request.user, uid)
        pod = find_pod(job, request.query_params.get("pod", ""))
        try:
            name = _choose(containers_now(ref_of(pod)), request.query_params.get("container", ""))
            wanted = LogRequest(ref_of(pod), name, previous, tail, since)
            lines: Any = stream_lines(wanted, in_full=is_admin(request.user))
            source = "live"
        except LogProblem as problem:
            attempt = stored_attempt(job, pod) if problem.is_gone else None
            if attempt is None:
                raise NoLog(problem, in_full=is_admin(request.user)) from problem
            lines, source = KeptLines(attempt.log), "kept"
        body = AsJson(lines) if is_json else AsText(lines, stamped=stamped)
        return _answer(body, pod, source, is_json=is_json)


def _requests_json(request: Request) -> bool:
    return request.headers.get("Accept", "").startswith((_LINES, "application/jsonl"))


def _read_tail(request: Request) -> int | None:
    text = request.query_params.get("tail_lines", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text)):
        raise ValidationError(
            {
                "tail_lines": [
                    f"must be a whole number from 1 to {10**_MOST_DIGITS - 1}, not {text[:50]!r}."
                ]
            }
        )
    return int(text)


def _read_since(request: Request) -> dt.datetime | None:
    try:
        found: dt.datetime | None = InstantField(required=False).clean(
            request.query_params.get("since", "")
        )
    except DjangoValidationError as error:
        raise ValidationError({"since": error.messages}) from error
    return found


def _choose(containers: Sequence[ContainerNow], name: str) -> str:
    names = [each.name for each in containers]
    if name and name not in names:
        known = ", ".join(names)
        raise ValidationError({"container": [f"{name[:80]!r} is not one of {known}."]})
    return name or names[0]


def _answer(body: AsText, pod: PodLifetime, source: str, *, is_json: bool) -> HttpResponse:
    kind = _LINES if is_json else f"{_TEXT}; charset=utf-8"
    answer: Any = StreamingHttpResponse(body, content_type=kind)
    ending = "jsonl" if is_json else "log"
    answer["Content-Disposition"] = f'inline; filename="{pod.pod_name}.{ending}"'
    answer["X-Log-Source"] = source
    made: HttpResponse = answer
    return made
