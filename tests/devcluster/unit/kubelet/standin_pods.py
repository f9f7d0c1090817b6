"""Pods in a few words, and a node that drives one of them on a clock of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from devcluster.kubelet.behaviour import Behaviour
from devcluster.kubelet.life import PodState, Situation
from devcluster.kubelet.machine import advance
from devcluster.kubelet.options import Durations
from ipuhub.times import format_time

if TYPE_CHECKING:
    from devcluster.kubelet.life import Note

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TRAPPED = ["sh", "-c", 'trap "exit 0" TERM; sleep 365d & wait']


def pod(restart: str = "Never", *, sim: dict[str, str] | None = None, **spec: Any) -> Any:
    """A bound pod with one container `main`; `sim` are annotations without their prefix."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "uid-a",
            "labels": {},
            "annotations": {f"sim/{key}": value for key, value in (sim or {}).items()},
        },
        "spec": {
            "nodeName": "node-0",
            "restartPolicy": restart,
            "containers": [container()],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def container(name: str = "main", command: list[str] | None = None, **more: Any) -> Any:
    """A container."""
    return {"name": name, "image": f"{name}:1", "command": command or ["train"], **more}


class Driver:
    """One pod on one node; time passes only in `pass_time` and `until_quiet`."""

    def __init__(self, manifest: Any, durations: Durations | None = None) -> None:
        self.pod = manifest
        self.state = PodState.observed(manifest)
        self.durations = durations or Durations()
        self.now = NOON + timedelta(milliseconds=900)  # whole seconds must not matter
        self.wake_at: datetime | None = None
        self.workers_ready = False
        self.removed = False
        self.writes: list[dict[str, Any]] = []
        self.notes: list[Note] = []

    @property
    def status(self) -> Any:
        return self.state.status

    def settle(self) -> Driver:
        """Step until nothing changes at the present time."""
        for _ in range(50):
            behaviour = Behaviour(self.pod, self.durations)
            situation = Situation(self.now, behaviour, "10.64.0.1", "10.128.0.1")
            if self.workers_ready:
                situation = Situation(self.now, behaviour, "10.64.0.1", "10.128.0.1", True)
            step = advance(self.pod, self.state, situation)
            self.state, self.wake_at = step.state, step.wake_at
            self.notes += step.notes if step.is_changed else ()
            if step.is_changed:
                self.writes.append(dict(step.state.status))
            self.removed = self.removed or step.remove
            if step.remove or self.wake_at is None or self.wake_at > self.now:
                return self
        raise AssertionError(f"no end to the changes: {self.writes[-3:]}")

    def pass_time(self, seconds: float) -> Driver:
        """Let time pass, with a step at each wake-up in between."""
        end = self.now + timedelta(seconds=seconds)
        self.settle()
        while self.wake_at is not None and self.wake_at <= end and not self.removed:
            self.now = self.wake_at
            self.settle()
        self.now = end
        return self.settle()

    def restart_node(self, *, down_seconds: float = 0.0) -> Driver:
        """Lose all memory; go on from the status as the API server stored it."""
        self.now += timedelta(seconds=down_seconds)
        self.pod["status"] = dict(self.state.status)
        self.state = PodState.observed(self.pod)
        return self.settle()

    def delete(self, grace: int = 30) -> Driver:
        """Do what the API server does at a DELETE."""
        gone_at = self.now + timedelta(seconds=grace)
        self.pod["metadata"] |= {
            "deletionTimestamp": format_time(gone_at),
            "deletionGracePeriodSeconds": grace,
        }
        return self.settle()

    def annotate(self, **annotations: str | None) -> Driver:
        """Set sim/ annotations of the live pod (underscores for dashes)."""
        for key, value in annotations.items():
            name = "sim/" + key.replace("_", "-")
            self.pod["metadata"]["annotations"].pop(name, None)
            if value is not None:
                self.pod["metadata"]["annotations"][name] = value
        return self.settle()

    def container(self, name: str = "main") -> Any:
        everything = [
            *(self.status.get("initContainerStatuses") or ()),
            *(self.status.get("containerStatuses") or ()),
        ]
        return next(one for one in everything if one["name"] == name)

    def condition(self, name: str) -> Any:
        return next(one for one in self.status["conditions"] if one["type"] == name)

    def truths(self) -> dict[str, str]:
        return {one["type"]: one["status"] for one in self.status["conditions"]}

    def summary(self, status: Any = None) -> str:
        """One line: the phase, then each container's state."""
        status = status or self.status
        words = [status["phase"]]
        for one in (
            *(status.get("initContainerStatuses") or ()),
            *(status.get("containerStatuses") or ()),
        ):
            kind, detail = next(iter(one["state"].items()))
            tail = {"waiting": detail.get("reason"), "terminated": detail.get("exitCode")}.get(kind)
            ready = "+" if one["ready"] else ""
            words.append(f"{one['name']}={'running' if kind == 'running' else tail}{ready}")
        return " ".join(words)

    def history(self) -> list[str]:
        """The summary of each write."""
        return [self.summary(status) for status in self.writes]
