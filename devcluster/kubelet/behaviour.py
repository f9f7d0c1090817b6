"""domain: the behaviour of a simulated pod, read from its sim/ annotations, commands and labels.

No container is ever run. Annotations of a pod (times in seconds):

  sim/startup-seconds      from the acceptance by the node until containers start
  sim/init-seconds         run time of each init container (0)
  sim/init-exit-code       their exit code; "1,0": 1 at the first try, then 0
  sim/runtime-seconds      run time of the containers; empty: without end
  sim/exit-code            exit code at the end; "1,1,0" by restart count, the last one repeats
  sim/termination-reason   reason of a failed container (Error), such as OOMKilled
  sim/termination-message  its message
  sim/ready-seconds        from running until Ready (else the readiness probe's initial delay)
  sim/stop-seconds         from SIGTERM until the end (0)
  sim/stop-exit-code       exit code then (143); 137 where the grace period ends first
  sim/log                  output of `kubectl logs` (else generated lines)
  sim/log-lines            number of generated lines before the others (0)
  sim/image-pull-error     "true": the image cannot be pulled

Each can be given for one container as `sim/<key>.<container name>`. Nodes have sim/down and
sim/not-ready. Containers with the operator's worker sleep run until they are ended or told to end
(ipuhub.io/end), whatever the annotations say: an IPUJob's annotations reach launcher and workers
alike. So do those that sleep for 365 days.

Also the pods of one IPUJob, and the condition for the start of its launcher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devcluster.kubelet.options import Durations
    from devcluster.standinlog import StandInLog

PREFIX: Final = "sim/"
LABEL_JOB_UID: Final = "graphcore.ai/ipujob-uid"
LABEL_ROLE: Final = "graphcore.ai/role"
ROLE_LAUNCHER: Final = "launcher"
SIGTERM_CODE: Final = 143
SIGKILL_CODE: Final = 137
_ENDLESS_SLEEP: Final = "sleep 365d"
_WATCHING_SLEEP: Final = re.compile(r"\(until \[ -s \S+/end \]; do sleep \d+; done\) & wait\b")
_TRAPPED_SLEEP: Final = re.compile(r"\bsleep (\d+)([smhd]?) & wait\b")
_UNIT_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TRAP: Final = re.compile(r"""\btrap\s+(["'])\s*exit 0\s*\1\s+(?:SIG)?TERM\b""")
_END: Final = "ipuhub.io/end"  # the operator signals sleeping pods with it to end


@dataclass(frozen=True, slots=True)
class Stop:
    """The reaction of a container to SIGTERM; `seconds` None: it ignores the signal."""

    seconds: float | None
    code: int


class Behaviour:
    """The behaviour of one pod. Values that cannot be read count as not given."""

    def __init__(self, pod: dict[str, Any], durations: Durations) -> None:
        metadata = pod["metadata"]
        self._labels: dict[str, str] = metadata.get("labels") or {}
        self._annotations: dict[str, str] = metadata.get("annotations") or {}
        self._always = pod["spec"].get("restartPolicy", "Always") == "Always"
        self.durations = durations

    def text(self, key: str, container: str = "") -> str | None:
        """Value of `sim/<key>.<container>`, else of `sim/<key>`, else None."""
        own = self._annotations.get(f"{PREFIX}{key}.{container}") if container else None
        return own if own is not None else self._annotations.get(PREFIX + key)

    def seconds(self, key: str, default: float, container: str = "") -> float:
        """Return a time of zero or more seconds."""
        try:
            return max(float(self.text(key, container) or default), 0.0)
        except ValueError:
            return default

    def exit_code(self, key: str, tries: int, container: str) -> int:
        """Exit code of the run after `tries` restarts; 0 where nothing is said."""
        codes = (self.text(key, container) or "0").split(",")
        try:
            return int(codes[min(tries, len(codes) - 1)])
        except ValueError:
            return 1

    def is_pull_failing(self, container: str) -> bool:
        """Return whether the image of `container` cannot be pulled."""
        return self.text("image-pull-error", container) == "true"

    def run_seconds(self, container: dict[str, Any]) -> float | None:
        """Return the seconds that a main container runs; None: until it is ended."""
        command = _command(container)
        if _ENDLESS_SLEEP in command or _WATCHING_SLEEP.search(command):
            return None
        text = self.text("runtime-seconds", container["name"])
        if text is not None:
            return None if not text else self.seconds("runtime-seconds", 0.0, container["name"])
        sleep = _TRAPPED_SLEEP.search(command)
        if sleep:
            return float(sleep[1]) * _UNIT_SECONDS[sleep[2]]
        return self._default_run_seconds()

    def is_told_to_end(self, container: dict[str, Any]) -> bool:
        """Return whether the container is the operator's sleep and has the signal to end."""
        watches = _WATCHING_SLEEP.search(_command(container))
        return watches is not None and bool(self._annotations.get(_END))

    def _default_run_seconds(self) -> float | None:
        if LABEL_JOB_UID in self._labels:
            is_launcher = self._labels.get(LABEL_ROLE) == ROLE_LAUNCHER
            return self.durations.launcher if is_launcher else self.durations.worker
        return None if self._always else self.durations.pod

    def ready_seconds(self, container: dict[str, Any]) -> float:
        """Return the seconds that a running container takes to become ready."""
        probe = container.get("readinessProbe") or {}
        delay = float(probe.get("initialDelaySeconds") or 0)
        return self.seconds("ready-seconds", delay, container["name"])

    def on_sigterm(self, container: dict[str, Any]) -> Stop:
        """Return how a container reacts to SIGTERM. A bare sleep as process 1 does not notice
        it."""
        command, name = _command(container), container["name"]
        has_trap = bool(_TRAP.search(command))
        code = self.text("stop-exit-code", name)
        default = 0 if has_trap else SIGTERM_CODE
        number = int(code) if code and code.isdigit() else default
        if self.text("stop-seconds", name) is None and _ENDLESS_SLEEP in command and not has_trap:
            return Stop(None, number)
        return Stop(self.seconds("stop-seconds", 0.0, name), number)

    def termination_message(
        self, container: dict[str, Any], code: int, log: Callable[[], StandInLog]
    ) -> str:
        """Return the container's termination message; after a failure the log's end, if it asks for
        that."""
        message = self.text("termination-message", container["name"])
        if message is not None:
            return message
        fallback = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        return log().message() if code and fallback else ""


def _command(container: dict[str, Any]) -> str:
    return " ".join([*(container.get("command") or ()), *(container.get("args") or ())])


LAUNCHER_INIT: Final = "ipuhub-launcher"
_LABELS: Final = (LABEL_JOB_UID, "graphcore.ai/instance", "graphcore.ai/attempt")
_WORKER: Final = "worker"


def attempt_of(pod: dict[str, Any]) -> str:
    """Job UID, instance and attempt of an IPUJob's pod as one text; empty for other pods."""
    labels = pod["metadata"].get("labels") or {}
    return "/".join(labels.get(name, "") for name in _LABELS) if LABEL_JOB_UID in labels else ""


def is_worker(pod: dict[str, Any]) -> bool:
    """Return whether the pod is a worker of an IPUJob."""
    return bool(attempt_of(pod)) and pod["metadata"]["labels"].get(LABEL_ROLE) == _WORKER


def waits_for_workers(pod: dict[str, Any]) -> bool:
    """Return whether the pod has the init container that lasts until all workers are Ready."""
    return any(c["name"] == LAUNCHER_INIT for c in pod["spec"].get("initContainers") or ())


def are_workers_ready(launcher: dict[str, Any], pods: Iterable[dict[str, Any]]) -> bool:
    """Return whether the workers among the `pods` of the launcher's attempt are all there and
    Ready.

    The init container's IPUHUB_WORKERS says how many there must be; without it, at least one.
    """
    ready = [is_ready(pod) for pod in pods if is_worker(pod)]
    return all(ready) and len(ready) >= (_wanted(launcher) or 1)


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether the pod's Ready condition is true and the pod is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _wanted(launcher: dict[str, Any]) -> int:
    for container in launcher["spec"].get("initContainers") or ():
        if container["name"] == LAUNCHER_INIT:
            for variable in container.get("env") or ():
                if variable.get("name") == "IPUHUB_WORKERS":
                    text = str(variable.get("value") or "")
                    return int(text) if text.isdigit() else 0
    return 0
