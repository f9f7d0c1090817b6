"""domain: one chronological list of a job's events: states, attempts, partitions, pods and
Kubernetes Events."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from dashboard.actions.changes import requested_verb
from dashboard.job.shapes import STOPPED, is_stopped
from ipuhub.text import spell_ipus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from dashboard.job.shapes import Attempt, ClusterEvent, Job, Lives, Partition, Pod, Request

KINDS: Final = ("job", "attempt", "partition", "pod", "action", "event")
"""Of events; the last is of Kubernetes."""
_NAMED: Final = 3  # of pods to which the same happened in the same second
_ORDER: Final = {"reserving": 1, "Pending": 2, "active": 3, "Scheduled": 4, "Started": 5}
"""Order within one second: Kubernetes' own times have no fractions."""
_LATE: Final = 6
_PLAIN: Final = "IPUJob"  # begins the reasons that only repeat the state
_TOLD_OF_PODS: Final = frozenset({"Scheduled", "Started"})  # by their lifetimes


@dataclass(frozen=True, slots=True)
class Event:
    """A line. `kind` is one of KINDS; `state` gives it its colour."""

    at: datetime
    kind: str
    what: str
    state: str = ""
    reason: str = ""
    message: str = ""
    is_first: bool = False


def list_events(job: Job, lives: Lives) -> list[Event]:
    """Return the events of a job, newest first; no sentence stands in two lines of one second, and
    none of Kubernetes beside a line that has it at any time."""
    events = [
        *_of_job(job),
        *_of_attempts(job),
        *(event for each in lives.partitions for event in _of_partition(each)),
        *_of_pods(lives.pods, job.past.attempts),
        *_of_cluster(job, {each.pod_name for each in lives.pods}),
    ]
    events.sort(key=_place, reverse=True)
    return list(_without_echoes(events))


def newest_within(events: Sequence[Event], most: int) -> list[Event]:
    """Return the newest `most` of these events, in their order. Lines of Kubernetes give way first:
    a pod that fails to start has many, and must not hide the job's outcome."""
    room = max(0, most - sum(event.kind != "event" for event in events))
    cluster_events = [event for event in events if event.kind == "event"][:room]
    newest = {id(event) for event in cluster_events}
    return [event for event in events if event.kind != "event" or id(event) in newest][:most]


def with_requests(
    events: Sequence[Event], requests: Iterable[Request], ended_at: datetime | None
) -> list[Event]:
    """Return events, newest first, with what people requested of a job that ended at `ended_at`."""
    entries = (_of_request(each, ended_at) for each in requests)
    both = sorted([*events, *entries], key=_place, reverse=True)
    return list(_without_echoes(both))


def _place(event: Event) -> tuple[datetime, int]:
    rank = 0 if event.kind == "job" and event.is_first else _ORDER.get(event.state, _LATE)
    return event.at.replace(microsecond=0), rank


def _of_job(job: Job) -> Iterator[Event]:
    by = f" by {job.user}" if job.user else ""
    yield Event(job.created_at, "job", f"Created{by}", "Pending", is_first=True)
    plain = f"IPUJob {job.namespace}/{job.name} "
    for each in job.past.transitions:
        message = "" if each.message.startswith(plain) else each.message
        reason = "" if each.reason.startswith(_PLAIN) else each.reason
        yield Event(each.at, "job", each.state, each.state, reason, message)
    if job.deleted_at is not None:
        about = "about then" if job.estimated else ""
        yield Event(job.deleted_at, "job", "Deleted", "Deleted", message=about)


def _of_attempts(job: Job) -> Iterator[Event]:
    for each in job.past.attempts:
        if each.ended_at is None or each.outcome != "Failed":
            continue
        own = f" of instance {each.instance}" if job.instances > 1 else ""
        what = f"Attempt {each.attempt + 1}{own} failed"
        yield Event(each.ended_at, "attempt", what, "Failed", each.reason, each.message)


def _of_request(each: Request, ended_at: datetime | None) -> Event:
    verb = requested_verb(each.action, each.at, ended_at)
    what = f"{each.user_name} asked to {verb} the job"
    if each.outcome != "accepted":
        what += f": {each.outcome}"
    state = "Failed" if each.outcome == "refused" else ""
    return Event(each.at, "action", what, state, message=each.message)


def _of_cluster(job: Job, pods: Collection[str]) -> Iterator[Event]:
    """Yield an entry for each second with Kubernetes Events of the job or its pods that no other
    source shows.

    The operator writes the same messages to Events and conditions, and an expired Event that recurs
    is a new one, so each message appears once, with its count.
    """
    messages = {each.message for each in job.past.transitions}
    messages |= {each.message for each in job.past.attempts}
    alike: dict[tuple[str, str, str], list[ClusterEvent]] = defaultdict(list)
    for each in job.past.events:
        is_told = each.message in messages or (not each.pod and each.reason.startswith(_PLAIN))
        if not is_told and not (each.pod in pods and each.reason in _TOLD_OF_PODS):
            alike[each.pod, each.reason, each.message].append(each)
    found = [(max(each.last_at for each in events), key, events) for key, events in alike.items()]
    found.sort(key=lambda line: (line[0].replace(microsecond=0), line[1][1:], line[1][0]))
    for (_, (reason, message)), same in groupby(
        found, key=lambda line: (line[0].replace(microsecond=0), line[1][1:])
    ):
        lines = list(same)
        cluster_events = [event for _, _, events in lines for event in events]
        names = _names([pod for _, (pod, _, _), _ in lines if pod])
        what = f"{names}: {message}" if names else message
        state = "Failed" if any(event.type == "Warning" for event in cluster_events) else ""
        yield Event(lines[0][0], "event", what, state, reason, _repeated(cluster_events))


def _repeated(events: Sequence[ClusterEvent]) -> str:
    count = sum(event.count for event in events)
    first = min(event.first_at for event in events)
    return f"{count} times since {first:%Y-%m-%d %H:%M:%S} UTC" if count > len(events) else ""


def _of_partition(each: Partition) -> Iterator[Event]:
    name = f"Partition {each.partition}"
    yield Event(
        each.reserved_at, "partition", f"{name}: {spell_ipus(each.size)} reserved", "reserving"
    )
    if each.active_at is not None:
        yield Event(each.active_at, "partition", f"{name} is ready", "active")
    if each.released_at is not None:
        yield Event(each.released_at, "partition", f"{name} released", "released")


def _of_pods(pods: Sequence[Pod], attempts: Sequence[Attempt]) -> Iterator[Event]:
    """One line for all pods to which the same happened in the same second."""
    found = [event for pod in pods for event in _of_pod(pod, attempts)]
    found.sort(key=lambda each: (each[0].replace(microsecond=0), each[1], each[2], each[3]))
    for (_, what, state), same in groupby(
        found, key=lambda each: (each[0].replace(microsecond=0), each[1], each[2])
    ):
        group = list(same)
        yield Event(group[0][0], "pod", f"{_names([each[3] for each in group])}: {what}", state)


def _of_pod(pod: Pod, attempts: Sequence[Attempt]) -> Iterator[tuple[datetime, str, str, str]]:
    if pod.scheduled_at is not None:
        where = f" on {pod.node}" if pod.node else ""
        yield pod.scheduled_at, f"scheduled{where}", "Scheduled", pod.pod_name
    if pod.started_at is not None:
        yield pod.started_at, "started", "Started", pod.pod_name
    if pod.finished_at is not None:
        code = "" if pod.exit_code is None else f", exit code {pod.exit_code}"
        reason = f" ({pod.reason})" if pod.reason and pod.reason != "Completed" else ""
        about = " about then" if pod.estimated else ""
        if is_stopped(pod, attempts):
            yield pod.finished_at, f"stopped{about}", STOPPED, pod.pod_name
            return
        state = "Failed" if pod.phase == "Failed" else "Completed"
        yield pod.finished_at, f"ended{about}{code}{reason}", state, pod.pod_name


def _names(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def _without_echoes(events: Iterable[Event]) -> Iterator[Event]:
    seen: set[tuple[datetime, str]] = set()
    for event in events:
        key = event.at.replace(microsecond=0), event.message
        if event.message and key in seen:
            yield Event(event.at, event.kind, event.what, event.state, event.reason)
            continue
        seen.add(key)
        yield event
