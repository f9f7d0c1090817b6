"""io: reads logs of a job's pods from the cluster, bounded in time and size, or returns why it
cannot.

A read holds a thread of the web process, so at most half of the threads read at the same time.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from dashboard.job.loglines import Line, newest, read_lines
from ipuhub.api.kinds import KINDS
from ipuhub.kube.errors import (
    ApiError,
    ConfigError,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Unreachable,
)
from ipuhub.kube.podlogs import BlockingLog, read_pod
from ipuhub.web.readings import NO_CONFIG, problem_sentence
from partitions.connections import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ipuhub.kube.podlogs import LogRequest, PodRef

READ_SECONDS: Final = 5.0
SHOWN_BYTES: Final = 2 * 2**20  # of the bytes read
_BUSY: Final = "Too many logs are being read now. Try again in a few seconds."
_AWAY, _GONE, _NONE = "cluster-unavailable", "pod-gone", "no-log"
_MAY_NOT: Final = (
    "The dashboard may not read logs in this cluster: its ServiceAccount needs `get` on `pods` and "
    "`pods/log`"
)


class LogProblem(Exception):  # noqa: N818  # an answer, not an error
    """The reason that there is no log: its kind, a sentence for everybody, and its detail for
    administrators."""

    def __init__(self, kind: str, problem: str, detail: str = "") -> None:
        super().__init__(problem)
        self.kind, self.problem, self.detail = kind, problem, detail

    @property
    def status(self) -> int:
        """The status of the answer."""
        return KINDS[self.kind].status

    @property
    def is_gone(self) -> bool:
        """Return whether the pod no longer exists."""
        return self.kind == _GONE

    def sentence(self, *, in_full: bool) -> str:
        """The sentence, with its detail only `in_full`."""
        return problem_sentence(self.problem.removesuffix("."), self.detail, in_full=in_full)


@dataclass(frozen=True, slots=True)
class ContainerNow:
    """A container as its pod's status shows it. `state`: running, waiting or ended; `is_final`: it
    writes nothing any more."""

    name: str
    is_init: bool
    state: str
    reason: str
    restarts: int
    is_final: bool


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest lines; `is_cut`: the page has no room for all requested lines."""

    lines: list[Line]
    is_cut: bool


def containers_now(pod: PodRef) -> list[ContainerNow]:
    """Return the pod's containers, main containers first. Raise LogProblem."""
    with _explained(""):
        manifest = sources().kube.run(read_pod, sources().kube.client, pod)
    return containers_of(manifest)


def containers_of(pod: Mapping[str, Any]) -> list[ContainerNow]:
    """Return the containers of a pod by its status, main containers first."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    is_over = status.get("phase") in {"Succeeded", "Failed"}
    policy = spec.get("restartPolicy") or "Always"
    found = []
    for key, field, is_init in (
        ("containers", "containerStatuses", False),
        ("initContainers", "initContainerStatuses", True),
    ):
        known = {known_status.get("name"): known_status for known_status in status.get(field) or ()}
        for container in spec.get(key) or ():
            known_status = known.get(container["name"]) or {}
            found.append(_container(container["name"], known_status, policy, is_init, is_over))
    return found


def _container(
    name: str, status: Mapping[str, Any], policy: str, is_init: bool, is_over: bool
) -> ContainerNow:
    state = status.get("state") or {}
    ended = state.get("terminated")
    again = policy == "Always" or (policy == "OnFailure" and bool((ended or {}).get("exitCode")))
    is_final = is_over or (ended is not None and (not again or (is_init and not ended["exitCode"])))
    word = "running" if "running" in state else "ended" if ended is not None else "waiting"
    details: Mapping[str, Any] = next(iter(state.values()), {})
    reason = str(details.get("reason") or "")
    return ContainerNow(
        name=name,
        is_init=is_init,
        state=word,
        reason=reason or ("ContainerCreating" if word == "waiting" else ""),
        restarts=int(status.get("restartCount") or 0),
        is_final=is_final,
    )


def read_tail(wanted: LogRequest, most: int) -> Tail:
    """Return the last `most` lines of the requested log. Raise LogProblem."""
    with _explained(wanted.container), _slot():
        log = BlockingLog(sources().kube, wanted, READ_SECONDS)
        lines, is_cut = newest(read_lines(log), most, SHOWN_BYTES)
    return Tail(lines, is_cut)


def stream_lines(wanted: LogRequest, *, in_full: bool) -> LogLines:
    """Open the log now, to read it later. Raise LogProblem."""
    with _explained(wanted.container):
        log = BlockingLog(sources().kube, wanted, settings.WEB_DOWNLOAD_SECONDS)
    return LogLines(log, in_full=in_full)


class LogLines:
    """The lines of an open log, a piece at a time; what breaks it off is its last line, with its
    detail only `in_full`.

    Close it, or read it to its end.
    """

    def __init__(self, log: BlockingLog, *, in_full: bool) -> None:
        self._log, self._in_full = log, in_full

    def __iter__(self) -> Iterator[Line]:
        try:
            yield from read_lines(self._log)
        except ApiError as error:
            sentence = explain(error, "").sentence(in_full=self._in_full)
            yield Line("", f"[The log is incomplete: {sentence.removesuffix('.')}]")

    def close(self) -> None:
        """Close the log."""
        self._log.close()


@contextmanager
def _slot() -> Iterator[None]:
    slots = _slots(settings.WEB_THREADS)
    if not slots.acquire(blocking=False):
        raise LogProblem("server-busy", _BUSY)
    try:
        yield
    finally:
        slots.release()


@lru_cache(maxsize=1)
def _slots(threads: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(max(1, threads // 2))


@contextmanager
def _explained(container: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise LogProblem(_AWAY, NO_CONFIG, str(error)) from error
    except ApiError as error:
        raise explain(error, container) from error


_WHY: Final[tuple[tuple[type[ApiError], str], ...]] = (
    (Unreachable, "The Kubernetes API does not answer"),
    (Forbidden, _MAY_NOT),
    (ServerError, "The pod's node does not send the log"),
)


def explain(error: ApiError, container: str) -> LogProblem:
    """Return the sentence that says why a log cannot be read."""
    if isinstance(error, NotFound):
        return LogProblem(_GONE, "The pod is gone from the cluster.")
    if isinstance(error, Invalid):
        return _refused(error, container)
    for kind, sentence in _WHY:
        if isinstance(error, kind):
            return LogProblem(_AWAY, sentence, error.message)
    return LogProblem(_AWAY, "The Kubernetes API refused to send the log", error.message)


def _refused(error: Invalid, container: str) -> LogProblem:
    """The kubelet's own words say what a container has not done yet."""
    who = f"Container {container}"
    if "previous terminated container" in error.message:
        return LogProblem(_NONE, f"{who} was not restarted, so there is no previous log.")
    if "waiting to start" in error.message:
        reason = error.message.rpartition(": ")[2]
        return LogProblem(_NONE, f"{who} has not started yet: {reason}.")
    return LogProblem(_NONE, f"There is no log of container {container}", error.message)
