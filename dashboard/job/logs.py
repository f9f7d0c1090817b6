"""glue: the logs of a job's pods on its page: selected, searched, followed, downloaded.

For a deleted pod only the last lines remain that the operator stored for a failed container.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from dashboard.job.loglines import AsText, KeptLines, after, hits_of, instant_of, is_mark
from dashboard.job.logreader import LogProblem, containers_now, read_tail, stream_lines
from dashboard.job.tabs import answer_static_tab, read_view
from ipuhub.kube.podlogs import LogRequest, PodRef
from ipuhub.web.access import is_admin, scope_of, signed_in
from ipuhub.web.filters import BadFilter, Mistake
from ipuhub.web.problems import bad_parameters, takes
from jobs.models import JobAttempt
from jobs.selectors import NO_JOB, jobs_with_uid
from usage.models import PodLifetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django.utils.safestring import SafeString

    from dashboard.job.loglines import Line
    from dashboard.job.logreader import ContainerNow
    from jobs.models import JobRecord

LINES: Final = (100, 1000, 10000)
_MORE: Final = 2000
_MOST_WORDS: Final = 200
_MOST_LINES: Final = 20_000  # of a followed log in the browser; twice as many while one reads above
_NOT_YET: Final = 409  # the container has written nothing so far
_GAP: Final = mark_safe(
    '<div class="line gap">Older lines were skipped: too many came at once.</div>'
)
_OFF: Final = "This installation does not show logs (IPUHUB_JOB_LOGS)."
_NO_POD: Final = "The job has no pod of this name or UID."


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The part of a log that a reader wants to see; `words`: only lines with them; `mark`: only
    what follows it."""

    pod: str = ""
    container: str = ""
    previous: bool = False
    lines: int = LINES[0]
    words: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The lines and facts to show. `kept`: what an attempt left behind, in place of a live log."""

    containers: Sequence[ContainerNow] = ()
    container: ContainerNow | None = None
    lines: Sequence[Line] = ()
    is_cut: bool = False
    problem: str = ""
    is_gone: bool = False
    attempt: JobAttempt | None = None


def require_logs() -> None:
    """Raise Http404 where logs are switched off."""
    if not settings.JOB_LOGS:
        raise Http404(_OFF)


def require_own_job(user: AbstractBaseUser | AnonymousUser, uid: str) -> JobRecord:
    """Return the job; a foreign job is as unknown as none. Raise Http404."""
    job = jobs_with_uid(scope_of(user), uid).first()
    if job is None:
        raise Http404(NO_JOB)
    return job


def find_pod(job: JobRecord, pod: str) -> PodLifetime:
    """Return the job's pod with this UID, else the newest of this name, else the newest launcher,
    else the newest pod. Raise Http404."""
    own = PodLifetime.objects.filter(job_uid=job.uid, namespace=job.namespace)
    if "\0" in pod:  # no text in PostgreSQL has it
        raise Http404(_NO_POD)
    newest = own.order_by("-created_at", "-pk")
    if pod:
        found = own.filter(uid=pod).first() or newest.filter(pod_name=pod).first()
    else:
        found = newest.filter(role="launcher").first() or newest.first()
    if found is None:
        raise Http404(_NO_POD)
    return found


def ref_of(pod: PodLifetime) -> PodRef:
    """The pod's reference in the cluster."""
    return PodRef(pod.namespace, pod.pod_name, pod.uid)


def stored_attempt(job: JobRecord, pod: PodLifetime) -> JobAttempt | None:
    """Return the operator's record of the attempt that the pod belonged to."""
    return find_attempt(JobAttempt.objects.filter(job=job), pod)


def find_attempt(attempts: Iterable[JobAttempt], pod: PodLifetime) -> JobAttempt | None:
    """Return the attempt that the pod belonged to, if it has a stored log."""
    place = pod.instance or 0, pod.attempt or 0
    return next(
        (
            attempt
            for attempt in attempts
            if attempt.log and place == (attempt.instance, attempt.attempt)
        ),
        None,
    )


@require_safe
@signed_in
@takes("after", "container", "format", "lines", "pod", "previous", "q")
def logs_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show the newest lines of a container; with `after` what came since, with `format` a file."""
    require_logs()
    try:
        query = read_log_query(request.GET)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    if query.mark or request.GET.get("format"):
        job = require_own_job(request.user, uid)
        pod = find_pod(job, query.pod)
        if query.mark:
            return _new_lines(request, pod, query)
        return _file(request, job, pod, query)
    view = read_view(request, uid)
    job = view.job
    among = _pod_among(view.held.pods, query.pod)
    if among is None and not query.pod:
        return answer_static_tab(view, "logs", "jobs/_logs.html", {"pod": None})
    pod = among or find_pod(job, query.pod)
    seen = _see(job, pod, query, in_full=is_admin(request.user))
    lines, count = _rendered(seen.lines, query.words)
    chosen = {"pod": pod.uid, "container": seen.container.name if seen.container else ""}
    if query.previous:
        chosen["previous"] = "on"
    own = {**chosen, "q": query.words} if query.words else chosen
    context = {
        "asked": query,
        "pod": pod,
        "pods": _labelled(view.held.pods, pod),
        "seen": seen,
        "kept_at": seen.attempt.ended_at if seen.attempt else None,
        "lines": lines,
        "shown": count,
        "choices": LINES,
        "most_words": _MOST_WORDS,
        "most_lines": _MOST_LINES,
        "more": f"?{urlencode(own)}" if _goes_on(seen, query) else "",
        "mark": seen.lines[-1].mark if seen.lines else _beginning(pod),
        "download": f"?{urlencode({**chosen, 'format': 'text'})}",
        "read_at": timezone.now(),
    }
    return answer_static_tab(view, "logs", "jobs/_logs.html", context)


def read_log_query(query: Mapping[str, str]) -> LogQuery:
    """Read the page's parameters. Raise BadFilter."""
    mistakes = []
    lines = query.get("lines") or str(LINES[0])
    if lines not in {str(each) for each in LINES}:
        known = ", ".join(str(each) for each in LINES)
        mistakes.append(Mistake("lines", f"{lines[:50]!r} is not one of {known}."))
    if query.get("previous", "") not in {"", "on"}:
        mistakes.append(Mistake("previous", "must be on, or left out."))
    words = query.get("q", "")
    if len(words) > _MOST_WORDS:
        mistakes.append(Mistake("q", f"at most {_MOST_WORDS} characters."))
    mark = query.get("after", "")
    if mark and not is_mark(mark):
        mistakes.append(Mistake("after", "is not the mark of a line. Leave the parameter out."))
    if query.get("format", "") not in {"", "text"}:
        mistakes.append(Mistake("format", "must be text, or left out."))
    if mistakes:
        raise BadFilter(*mistakes)
    return LogQuery(
        pod=query.get("pod", ""),
        container=query.get("container", ""),
        previous=query.get("previous") == "on",
        lines=int(lines),
        words=words,
        mark=mark,
    )


def _see(job: JobRecord, pod: PodLifetime, query: LogQuery, *, in_full: bool) -> Seen:
    containers: Sequence[ContainerNow] = ()
    container = None
    try:
        containers = containers_now(ref_of(pod))
        container = _choose(containers, query.container)
        wanted = LogRequest(
            ref_of(pod), container.name, previous=query.previous, tail_lines=query.lines
        )
        tail = read_tail(wanted, query.lines)
    except LogProblem as problem:
        wants_kept = problem.is_gone or not query.previous
        attempt = find_attempt(job.past.attempts, pod) if wants_kept else None
        return Seen(
            containers,
            container,
            problem=problem.sentence(in_full=in_full),
            is_gone=problem.is_gone,
            attempt=attempt,
        )
    return Seen(containers, container, tail.lines, tail.is_cut)


def _pod_among(pods: Sequence[PodLifetime], uid: str) -> PodLifetime | None:
    """The pod with this UID; without one the newest launcher, else the newest pod."""
    if uid:
        return next((pod for pod in pods if pod.uid == uid), None)
    launchers = [pod for pod in pods if pod.role == "launcher"]
    return max(launchers or pods, key=lambda pod: (pod.created_at, pod.pk), default=None)


def _choose(containers: Sequence[ContainerNow], name: str) -> ContainerNow:
    """The container of this name; else the first: each pod has its own names."""
    return next((container for container in containers if container.name == name), containers[0])


def _goes_on(seen: Seen, query: LogQuery) -> bool:
    return (
        not query.previous
        and not seen.is_gone
        and bool(seen.container and not seen.container.is_final)
    )


def _beginning(pod: PodLifetime) -> str:
    """A mark before the first line of a container that has written nothing yet."""
    return f"{'0' * 16}~{pod.created_at:%Y-%m-%dT%H:%M:%SZ}"


def _new_lines(request: HttpRequest, pod: PodLifetime, query: LogQuery) -> HttpResponseBase:
    """The lines after a mark. Headers return the next mark and whether the log continues."""
    mark, text, state = query.mark, "", "running"
    try:
        container = _choose(containers_now(ref_of(pod)), query.container)
        # Bounded by lines, too: what came while a browser slept may be more than can be read.
        wanted = LogRequest(ref_of(pod), container.name, tail_lines=_MORE, since=instant_of(mark))
        tail = read_tail(wanted, _MORE)
        came, is_known = after(tail.lines, mark)
        text, _ = _rendered(came, query.words)
        if not is_known and (tail.is_cut or len(tail.lines) == _MORE):
            text = _GAP + text
        mark = came[-1].mark if came else mark
        state = "ended" if container.is_final else "running"
    except LogProblem as problem:
        if problem.status != _NOT_YET:
            text = escape(problem.sentence(in_full=is_admin(request.user)))
            state = "ended" if problem.is_gone else "away"
    answer = HttpResponse(text)
    answer["X-Log-State"], answer["X-Log-Mark"] = state, mark
    return answer


def _rendered(lines: Iterable[Line], words: str) -> tuple[SafeString, int]:
    """The lines as HTML, and how many they are; templates take seconds for ten thousand."""
    found = []
    for line, parts in hits_of(lines, words):
        text = "".join(
            f"<mark>{escape(part)}</mark>" if is_hit else escape(part) for part, is_hit in parts
        )
        cut = "" if line.ends else ' <span class="cut">[line cut]</span>'
        when = f'<time datetime="{escape(line.at)}">{escape(line.at[11:23])}</time>'
        found.append(f'<div class="line">{when}<span>{text}{cut}</span></div>\n')
    return mark_safe("".join(found)), len(found)  # noqa: S308  # escaped above


def _labelled(pods: Sequence[PodLifetime], chosen: PodLifetime) -> list[tuple[str, str, bool]]:
    """UID, text and whether it is chosen: the newest attempt and its launcher first."""
    ordered = sorted({pod.pk: pod for pod in (*pods, chosen)}.values(), key=_place)
    return [
        (pod.uid, f"{pod.pod_name}, attempt {(pod.attempt or 0) + 1}", pod.pk == chosen.pk)
        for pod in ordered
    ]


def _place(pod: PodLifetime) -> tuple[int, int, bool, str]:
    return -(pod.attempt or 0), pod.instance or 0, pod.role != "launcher", pod.pod_name


def _file(
    request: HttpRequest, job: JobRecord, pod: PodLifetime, query: LogQuery
) -> HttpResponseBase:
    """The whole log as text, one chunk at a time; of a deleted pod, the stored lines."""
    try:
        container = _choose(containers_now(ref_of(pod)), query.container)
        wanted = LogRequest(ref_of(pod), container.name, previous=query.previous)
        body = AsText(stream_lines(wanted, in_full=is_admin(request.user)))
    except LogProblem as problem:
        attempt = stored_attempt(job, pod) if problem.is_gone else None
        if attempt is None:
            sentence = problem.sentence(in_full=is_admin(request.user))
            context = {"sentence": sentence, "title": "There is no log"}
            return render(request, "busy.html", context, status=problem.status)
        body = AsText(KeptLines(attempt.log))
    return _attachment(StreamingHttpResponse(body), pod)


def _attachment(answer: Any, pod: PodLifetime) -> HttpResponseBase:
    answer["Content-Type"] = "text/plain; charset=utf-8"
    answer["Content-Disposition"] = f'attachment; filename="{pod.pod_name}.log"'
    made: HttpResponseBase = answer
    return made
