"""domain: the card of a job that waits, failed, restarts or is idle: state, reason and remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipuhub.text import spell_duration
from jobs.ipujob.advice import ADVICE, ADVICE_AT_THE_END
from jobs.ipujob.conditions import SENTENCES, JobState, Reason, brief_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from dashboard.fleetqueue import Holding, Waiting
    from dashboard.job.shapes import Attempt, Job, Lives, Pod
    from partitions.fleetjson import FleetJson

IDLE_AFTER_SECONDS: Final = 60  # pods of a job that has just got its IPUs are about to run
LOG_LINES: Final = 20
_UNASKED: Final = (
    "The IPU Operator does not ask for the job's IPUs, so that it is not in the queue."
)
_QUIET: Final = frozenset({"IPUJobPending", "IPUJobRunning", "IPUJobSucceeded"})
_KIND_OF_STATE: Final = {
    JobState.PENDING.value: "waiting",
    JobState.SUSPENDED.value: "suspended",
}
_SENTENCES: Final[Mapping[str, str]] = {str(reason): text for reason, text in SENTENCES.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a waiting job, from one snapshot of the fleet.

    `before`: older jobs that wait; `line`: its line of the queue (None: the proxy does not know of
    it yet); `queue`: how many wait there; `free` IPUs in all, the `largest_free` block (None: not
    known), the `largest` block there could be. `free_as_of` is set while the proxy or a controller
    does not answer; `problem` says so of the proxy. `out_of_service`: which IPUs no job gets, and
    why. `fleet` and its `holdings`: the snapshot, for a map.
    """

    before: int
    line: Waiting | None
    queue: int
    free: int | None
    largest_free: int | None
    largest: int
    free_as_of: datetime | None
    problem: str
    out_of_service: str
    fleet: FleetJson = field(repr=False)
    holdings: Mapping[tuple[str, str], Holding] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact beside the sentence; with `at` an instant is shown after the value, with `links` names
    with the UIDs of their jobs."""

    label: str
    value: str
    at: datetime | None = None
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The card. `kind`: waiting, failed, restarting, idle, suspended or trouble; `log`: the last
    lines of the container that failed; `problem`: why a fact may be old."""

    kind: str
    title: str
    facts: tuple[Fact, ...] = ()
    reason: str = ""
    advice: str = ""
    log: str = ""
    problem: str = ""


def diagnose(
    job: Job, state: str, lives: Lives, place: Place | None, now: datetime
) -> Diagnosis | None:
    """Return the card of a job; None if nothing is wrong and the job does not wait."""
    if state == JobState.FAILED.value:
        return _failed(job, lives)
    if job.deleted_at is not None or job.completed_at is not None:
        return None
    if place is not None:
        return _waiting(job, place)
    if state == JobState.RESTARTING.value:
        return _restarting(job, lives)
    if job.reason and job.reason not in _QUIET:
        kind = _KIND_OF_STATE.get(state, "trouble")
        return Diagnosis(kind, _sentence(job), reason=job.reason, advice=_advice(job.reason))
    return _idle(job, lives, now)


def _sentence(job: Job) -> str:
    message = brief_message(job.message, f"{job.namespace}/{job.name}")
    plain = f"IPUJob {job.namespace}/{job.name} "
    if (not message or job.message.startswith(plain)) and job.reason in _SENTENCES:
        message = _SENTENCES[job.reason]
    return _ended(message) if message else message


def _advice(reason: str) -> str:
    return ADVICE.get(reason, "")


def _waiting(job: Job, place: Place) -> Diagnosis:
    line, unit = place.line, "IPU" if job.ipus == 1 else "IPUs"
    title = _sentence(job)
    if line is not None:
        title = {
            "never": f"The job can never start: it needs {line.ipus} IPUs in one block, and the "
            f"largest block of the fleet has {place.largest}.",
            "blocked": "An older job is served first.",
            "soon": f"A block of {line.ipus} {unit} is free: the job is about to start.",
        }.get(line.kind, title)
        if line.kind == "block" and place.largest_free is not None:
            free = f"the largest free block has {place.largest_free}"
            none = "no IPU is free"
            title = (
                f"The job needs {line.ipus} {unit} in one block, and "
                f"{free if place.largest_free else none}."
            )
    facts = tuple(_waiting_facts(place))
    # A job that was refused once is in the queue for as long as the operator asks again.
    is_unasked = line is None and job.reason == Reason.NO_CAPACITY.value
    advice = "Ask for fewer IPUs." if line is not None and line.kind == "never" else ""
    return Diagnosis(
        "waiting",
        title,
        facts,
        reason=job.reason,
        advice=advice or _advice(job.reason),
        problem=place.problem or (_UNASKED if is_unasked else ""),
    )


def _waiting_facts(place: Place) -> Iterator[Fact]:
    line = place.line
    if line is None:
        yield Fact("Older waiting jobs", str(place.before))
    elif line.position:
        yield Fact("Position in the queue", f"{line.position} of {place.queue}")
    free = "unknown" if place.free is None else str(place.free)
    yield Fact("Free IPUs", free, place.free_as_of)
    if line is None:
        return
    if line.blockers:
        yield Fact("In the way", "", links=line.blockers)
    if line.kind == "block" and place.out_of_service:
        yield Fact("Out of service", place.out_of_service)
    if line.free_by is not None:
        # An older job may take the block that comes free.
        label = "Starts at the latest" if line.position == 1 else "Block free at the latest"
        limits = "its time limit ends" if len(line.blockers) == 1 else "their time limits end"
        yield Fact(label, f"when {limits},", line.free_by)
    elif line.typical is not None:
        seconds, jobs = line.typical
        yield Fact("Jobs of this size ran", f"{spell_duration(seconds)} (median of {jobs})")


def _failed(job: Job, lives: Lives) -> Diagnosis:
    attempt = last_failure(job.past.attempts)
    reason = (attempt.reason if attempt else "") or job.reason
    title = (attempt.message if attempt else "") or _sentence(job)
    facts = list(_failure_facts(job, attempt, lives))
    if job.past.earlier:
        links = tuple((each.name, each.uid) for each in job.past.earlier)
        facts.append(Fact("Failed like this in 30 days", "", links=links))
    advice = ADVICE_AT_THE_END.get(reason) or _advice(reason) or _advice(job.reason)
    return Diagnosis(
        "failed", _ended(title), tuple(facts), reason=reason, advice=advice, log=_tail(attempt)
    )


def _restarting(job: Job, lives: Lives) -> Diagnosis:
    attempt = last_failure(job.past.attempts)
    facts = [Fact("Restarts so far", str(job.restart_count))]
    if attempt is not None:
        facts.append(Fact("Last failure", _ended(attempt.message or "unknown")))
        facts.extend(_failure_facts(job, attempt, lives))
    reason = (attempt.reason if attempt else "") or job.reason
    return Diagnosis(
        "restarting",
        _sentence(job),
        tuple(facts),
        reason=reason,
        advice=_advice(reason),
        log=_tail(attempt),
    )


def _failure_facts(job: Job, attempt: Attempt | None, lives: Lives) -> Iterator[Fact]:
    if attempt is None:
        return
    if attempt.exit_code is not None:
        yield Fact("Exit code", str(attempt.exit_code))
    number = f"{attempt.attempt + 1}"
    yield Fact("Attempt", number if job.instances == 1 else f"{number} of #{attempt.instance}")
    pod = _culprit(attempt, lives.pods)
    if pod is not None:
        yield Fact("Pod", pod.pod_name)
        if pod.node:
            yield Fact("Node", pod.node)


def last_failure(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that failed last: why the job was restarted; None: none failed."""
    failed = [each for each in attempts if each.ended_at and each.outcome == "Failed"]
    return max(failed, key=lambda each: (each.ended_at, each.attempt), default=None)


def _culprit(attempt: Attempt, pods: Sequence[Pod]) -> Pod | None:
    """The pod of the attempt that failed first with its exit code."""
    own = [
        pod
        for pod in pods
        if (pod.attempt or 0, pod.instance or 0) == (attempt.attempt, attempt.instance)
        and pod.phase == "Failed"
        and pod.exit_code == attempt.exit_code
        and pod.finished_at is not None
    ]
    return min(own, key=lambda pod: (pod.finished_at, pod.role != "launcher"), default=None)


def _tail(attempt: Attempt | None) -> str:
    return "\n".join(attempt.log.splitlines()[-LOG_LINES:]) if attempt else ""


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _idle(job: Job, lives: Lives, now: datetime) -> Diagnosis | None:
    """A partition that is held while no pod of the job has been running for a minute."""
    held = [p for p in lives.partitions if p.active_at is not None and p.released_at is None]
    if not held or any(pod.started_at and not pod.finished_at for pod in lives.pods):
        return None
    ends = [pod.finished_at for pod in lives.pods if pod.finished_at is not None]
    begins = [p.active_at for p in held if p.active_at is not None]
    since = max([*ends, min(begins)])
    if (now - since).total_seconds() < IDLE_AFTER_SECONDS:
        return None
    size = sum(p.size for p in held)
    unit = "IPU" if size == 1 else "IPUs"
    title = f"The job holds {size} {unit}, and none of its pods is running."
    return Diagnosis("idle", title, (Fact("Idle since", "", since),), reason=job.reason)
