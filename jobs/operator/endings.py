"""domain: how a pod's containers ended, in words a person can act on."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason
from jobs.operator.logtail import clean_tail

if TYPE_CHECKING:
    from jobs.ipujob.manifests import Manifest

OOM_KILLED = "OOMKilled"
KILLED_BY_SIGNAL = 128  # a shell and the kubelet add it to the signal's number
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
LONGEST_WHY = 600


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a pod failed: a reason, a sentence, and the last lines of the failing container's log.

    `exit_code` is None where no container's code says so.
    """

    reason: Reason
    sentence: str
    exit_code: int | None = None
    log: str = ""


def ending_of(name: str, spec: Manifest, status: Manifest) -> Ending:
    """How the failed pod `name` ended: by its first failed container, init containers first."""
    if status.get("reason") == "DeadlineExceeded":
        seconds = spec.get("activeDeadlineSeconds")
        said = f"Pod {name} has run for longer than its template's activeDeadlineSeconds"
        return Ending(Reason.POD_DEADLINE, f"{said} of {seconds} s" if seconds else said)
    for container, terminated in terminated_of(spec, status):
        if terminated.get("exitCode"):
            return _of_container(name, container, terminated, spec)
    words = [str(status[part]) for part in ("reason", "message") if status.get(part)]
    return Ending(Reason.FAILED, ": ".join([f"{name} has failed", *words])[:LONGEST_WHY])


def is_out_of_memory(spec: Manifest, status: Manifest) -> bool:
    """Whether any container of the pod was killed for the memory it used."""
    ended = terminated_of(spec, status)
    return any(terminated.get("reason") == OOM_KILLED for _, terminated in ended)


def terminated_of(spec: Manifest, status: Manifest) -> list[tuple[str, Manifest]]:
    """The containers that have ended, by name, init containers first. Not the native sidecars
    (init containers with restartPolicy Always): the kubelet ends them with SIGTERM when the others
    have ended, and Kubernetes does not judge a pod by them either."""
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    return [
        (str(container.get("name")), terminated)
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in status.get(kind) or ()
        if container.get("name") not in sidecars
        and (terminated := (container.get("state") or {}).get("terminated"))
    ]


def exit_words(code: int) -> str:
    """The code and, where it tells of one, the signal: `137 (SIGKILL)`."""
    try:
        return f"{code} ({signal.Signals(code - KILLED_BY_SIGNAL).name})"
    except ValueError:
        return str(code)


def _of_container(name: str, container: str, terminated: Manifest, spec: Manifest) -> Ending:
    code, word = int(terminated["exitCode"]), terminated.get("reason")
    log = clean_tail(str(terminated.get("message") or ""))
    where = f"Container {container} of {name}"
    if word == OOM_KILLED:
        limit = _memory_limit(container, spec)
        most = f"its limit of {limit}" if limit else "the node had left"
        said = f"{where} was killed since it used more memory than {most}"
        return Ending(
            Reason.OOM_KILLED, f"{said} (OOMKilled, exit code {exit_words(code)})", code, log
        )
    said = f"{where} has exited with code {exit_words(code)}"
    if word in NEVER_RAN:
        said = f"{where} could not be started ({word}, exit code {code})"
        said += f": {' '.join(log.split())}" if log else ""
    return Ending(Reason.FAILED, said[:LONGEST_WHY], code, log)


def _memory_limit(name: str, spec: Manifest) -> str:
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            if container.get("name") == name:
                limits = (container.get("resources") or {}).get("limits") or {}
                return str(limits.get("memory") or "")
    return ""
