"""domain: the life cycle of a container: pull, start, readiness, end, restart."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet import containers
from devcluster.kubelet.behaviour import LAUNCHER_INIT
from devcluster.standinlog import Run, StandInLog
from ipuhub.backoff import exponential
from ipuhub.times import read_time

if TYPE_CHECKING:
    from datetime import datetime

    from devcluster.kubelet.life import Life

_ERROR_SHOWN: Final = 1.0  # seconds of ErrImagePull before ImagePullBackOff
_CALM: Final = 600.0  # a container that ran this long is restarted without a back-off


def drive_init(life: Life, container: dict[str, Any], status: dict[str, Any]) -> None:
    """Move an init container one step on; a container without a run time starts and ends in one
    step."""
    if not containers.is_running(status) and not _begin(life, status):
        return
    if life.situation.ends is not None:
        end_with_process(life, status)
        status["ready"] = containers.exit_code(status) == 0
        return
    name, since = container["name"], started_at(life, status)
    code = life.behaviour.exit_code("init-exit-code", status["restartCount"], name)
    seconds = life.behaviour.seconds("init-seconds", 0.0, name)
    if not life.is_due(since, seconds):
        return
    if name == LAUNCHER_INIT and code == 0:
        if life.situation.are_workers_ready:
            end(life, container, status, code, life.now)
            status["ready"] = True
        return  # a change of a worker brings the next step
    end(life, container, status, code, since + timedelta(seconds=seconds))
    status["ready"] = code == 0


def drive_main(life: Life, container: dict[str, Any], status: dict[str, Any]) -> None:
    """Move a main container one step on."""
    if not containers.is_running(status):
        code = containers.exit_code(status)
        if code is None or _is_restarted(life.restart_policy, code):
            _begin(life, status)
            _show_ready(life, container, status)
        return
    if life.situation.ends is not None:
        if not end_with_process(life, status):
            _show_ready(life, container, status)
        return
    if life.behaviour.is_told_to_end(container):
        end(life, container, status, 0, life.now)
        return
    since = started_at(life, status)
    seconds = life.behaviour.run_seconds(container)
    if seconds is None or not life.is_due(since, seconds):
        _show_ready(life, container, status)
        return
    code = life.behaviour.exit_code("exit-code", status["restartCount"], container["name"])
    end(life, container, status, code, since + timedelta(seconds=seconds))


def started_at(life: Life, status: dict[str, Any]) -> datetime:
    """Return when the running container started."""
    return life.instant(_run(status), status["state"]["running"]["startedAt"])


def end(
    life: Life, container: dict[str, Any], status: dict[str, Any], code: int, at: datetime
) -> None:
    """End the running container with `code`, as its annotations describe that end."""
    life.marks[_run(status) + "/end"] = at
    reason = life.behaviour.text("termination-reason", container["name"]) if code else ""
    began = started_at(life, status)

    def log() -> StandInLog:
        pod = {"metadata": life.metadata, "spec": life.spec}
        return StandInLog(pod, container["name"], Run(began, at, code), at)

    message = life.behaviour.termination_message(container, code, log)
    containers.finish(status, code, at, reason=reason or "", message=message)


def end_with_process(life: Life, status: dict[str, Any]) -> bool:
    """End the running container if its process has ended; return whether it has."""
    found = (life.situation.ends or {}).get(status.get("containerID", ""))
    if found is not None:
        life.marks[_run(status) + "/end"] = found.at
        containers.finish(status, found.code, found.at, message=found.message)
    return found is not None


def _show_ready(life: Life, container: dict[str, Any], status: dict[str, Any]) -> None:
    if containers.is_running(status) and not status["ready"]:
        delay = life.behaviour.ready_seconds(container)
        status["ready"] = life.is_due(started_at(life, status), delay)


def _begin(life: Life, status: dict[str, Any]) -> bool:
    """Start the container unless its image or a back-off keeps it waiting."""
    if not _is_pulled(life, status) or not _is_backoff_over(life, status):
        return False
    containers.start(status, life.metadata["uid"], life.now)
    life.marks[_run(status)] = life.now
    return True


def _is_pulled(life: Life, status: dict[str, Any]) -> bool:
    if containers.last_end(status) is not None:
        return True  # it has run: the image is there
    name, image = status["name"], status["image"]
    failing = life.behaviour.is_pull_failing(name)
    tries = sum(mark.startswith(f"pull/{name}/") for mark in life.marks)
    failed_at = life.marks.get(f"pull/{name}/{tries - 1}")
    if failed_at is not None:
        durations = life.behaviour.durations
        pause = exponential(tries - 1, base=durations.backoff, maximum=durations.backoff_max)
        if failing and not life.is_due(failed_at, pause):
            if life.is_due(failed_at, _ERROR_SHOWN):
                containers.wait(
                    status, containers.PULL_BACKOFF, f'Back-off pulling image "{image}"'
                )
            return False
    if not failing:
        return True
    life.marks[f"pull/{name}/{tries}"] = life.now
    message = f'failed to pull and unpack image "{image}": not found'
    containers.wait(status, containers.PULL_FAILED, message)
    life.note("Warning", "Failed", f'Failed to pull image "{image}": not found')
    life.is_due(life.now, _ERROR_SHOWN)
    return False


def _is_backoff_over(life: Life, status: dict[str, Any]) -> bool:
    """Return whether an ended container may start again; the first restart is at once."""
    ended = containers.last_end(status)
    if ended is None or status["restartCount"] == 0:
        return True
    at = life.instant(_run(status) + "/end", ended["finishedAt"])
    if (at - read_time(ended["startedAt"])).total_seconds() >= _CALM:
        return True
    durations = life.behaviour.durations
    tries = status["restartCount"] - 1
    pause = exponential(tries, base=durations.backoff, maximum=durations.backoff_max)
    if life.is_due(at, pause):
        return True
    if containers.waiting_reason(status) != containers.CRASH_LOOP:
        metadata = life.metadata
        owner = f"{metadata['name']}_{metadata.get('namespace')}({metadata['uid']})"
        message = (
            f"back-off {_duration(pause)} restarting failed container={status['name']} pod={owner}"
        )
        containers.wait(status, containers.CRASH_LOOP, message)
        life.note("Warning", "BackOff", f"Back-off restarting failed container {status['name']}")
    return False


def _is_restarted(policy: str, code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _run(status: dict[str, Any]) -> str:
    """Name of the mark of a container's present run."""
    return f"{status['name']}#{status['restartCount']}"


def _duration(seconds: float) -> str:
    """Write 10s, 1m20s or 5m0s, as Go does."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
