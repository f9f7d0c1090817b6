"""domain: termination of a pod by deletion or by its activeDeadlineSeconds."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet import containers
from devcluster.kubelet.behaviour import SIGKILL_CODE
from devcluster.kubelet.containerlife import end, end_with_process, started_at
from devcluster.kubelet.containers import TERMINAL, final_phase
from ipuhub.times import read_time

if TYPE_CHECKING:
    from datetime import datetime

    from devcluster.kubelet.life import Life

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
_DEADLINE_MESSAGE: Final = "Pod was active on the node longer than the specified deadline"
_SIGTERM: Final = "sigterm"
_DEFAULT_GRACE: Final = 30
_ROUNDING: Final = timedelta(seconds=2)  # the API's times are whole seconds


def end_deleted(life: Life) -> None:
    """Move a pod on that is being deleted; `remove` once nothing of it runs."""
    if life.status["phase"] in TERMINAL or not life.is_accepted:
        life.remove = True
        return
    grace = life.metadata.get("deletionGracePeriodSeconds") or 0
    asked_at = read_time(life.metadata["deletionTimestamp"]) - timedelta(seconds=grace)
    # Seen while the node was up: the exact time. Else what the node missed counts too.
    seen_at = life.now if life.now - asked_at < _ROUNDING else asked_at
    life.marks.setdefault(f"kill/{grace}", seen_at + timedelta(seconds=grace))
    since = life.marks.setdefault(_SIGTERM, seen_at)
    # A second deletion may shorten the grace period, never lengthen it.
    kill_at = min(at for mark, at in life.marks.items() if mark.startswith("kill/"))
    if _stop(life, since, kill_at):
        life.status["phase"] = final_phase(life.status)
        life.remove = True


def is_past_deadline(life: Life) -> bool:
    """Return whether activeDeadlineSeconds, counted from the pod's start, are over."""
    deadline = life.spec.get("activeDeadlineSeconds")
    if deadline is None:
        return False
    return life.is_due(life.instant("start", life.status["startTime"]), float(deadline))


def end_at_deadline(life: Life) -> None:
    """Stop the containers with the pod's own grace, then mark it Failed/DeadlineExceeded."""
    grace = life.spec.get("terminationGracePeriodSeconds")
    seconds = _DEFAULT_GRACE if grace is None else int(grace)
    since = life.marks.setdefault(_SIGTERM, life.now)
    if _stop(life, since, since + timedelta(seconds=seconds)):
        life.status |= {
            "phase": "Failed",
            "reason": DEADLINE_EXCEEDED,
            "message": _DEADLINE_MESSAGE,
        }
        life.note("Normal", DEADLINE_EXCEEDED, _DEADLINE_MESSAGE)


def _stop(life: Life, since: datetime, kill_at: datetime) -> bool:
    """Stop the containers, signalled at `since`; return whether none runs."""
    if life.situation.ends is not None:
        return _stop_processes(life, kill_at)
    for container, status in life.all_pairs():
        if containers.is_running(status):
            code, at = _end_of(life, container, status, since, kill_at)
            if life.now >= at:
                end(life, container, status, code, at)
            else:
                life.wake(at)
    return not any(containers.is_running(status) for _, status in life.all_pairs())


def _stop_processes(life: Life, kill_at: datetime) -> bool:
    """Signal the processes that run; their ends bring the next step."""
    is_late = life.now >= kill_at
    for _, status in life.all_pairs():
        if containers.is_running(status) and not end_with_process(life, status):
            number = signal.SIGKILL if is_late else signal.SIGTERM
            life.signals[status["containerID"]] = number
            if not is_late:
                life.wake(kill_at)
    return not any(containers.is_running(status) for _, status in life.all_pairs())


def _end_of(
    life: Life,
    container: dict[str, Any],
    status: dict[str, Any],
    since: datetime,
    kill_at: datetime,
) -> tuple[int, datetime]:
    """Exit code and time of a container's end: by itself, by SIGTERM or by SIGKILL."""
    began = started_at(life, status)
    stop = life.behaviour.on_sigterm(container)
    ends = [(max(kill_at, began), SIGKILL_CODE)]
    if stop.seconds is not None:
        ends.append((max(since, began) + timedelta(seconds=stop.seconds), stop.code))
    is_main = any(container is main for main, _ in life.pairs("containers"))
    seconds = life.behaviour.run_seconds(container) if is_main else None
    if seconds is not None:
        tries = status["restartCount"]
        code = life.behaviour.exit_code("exit-code", tries, container["name"])
        ends.append((began + timedelta(seconds=seconds), code))
    at, code = min(ends, key=lambda end: end[0])
    return code, at
