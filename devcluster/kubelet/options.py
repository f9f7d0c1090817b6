"""domain: how many stand-in nodes there are, what they offer, and how long pods take on them.

Instants as the Kubernetes API writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """Read `key=value:Effect` or `key:Effect`. Raises ValueError."""
        pair, colon, effect = text.rpartition(":")
        key, _, value = pair.partition("=")
        if not colon or not key or effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            raise ValueError(f"taint {text!r}: write key=value:NoSchedule or key=value:NoExecute")
        return cls(key, value, effect)


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that pods take where their sim/ annotations say nothing.

    `launcher` and `worker` are run times of an IPUJob's pods, `pod` of others that are not to
    run for ever; `backoff` doubles at each restart up to `backoff_max`.
    """

    launcher: float = 900.0
    worker: float = 900.0
    pod: float = 900.0
    startup: float = 0.0
    backoff: float = 10.0
    backoff_max: float = 300.0


@dataclass(frozen=True, slots=True)
class StandInOptions:
    """The nodes `<prefix><first>` ... and their behaviour; all times in seconds.

    `{i}` in a label value is replaced by the node's number. `extended` are further resources
    (name to amount). `scheduler`, `lifecycle` (dead nodes and their pods) and `claims` (binding
    of volume claims) take the part of controllers that a full cluster has already.
    `eviction_seconds` replaces the tolerationSeconds of pods on dead nodes. With `processes`, a
    folder, containers are processes on this machine; the nodes then show where they answer
    (`kubelet_port`) and by which certificate (PEM) to know them.
    """

    nodes: int = 4
    first: int = 0
    prefix: str = "node-"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    extended: Mapping[str, str] = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations)
    scheduler: bool = True
    scheduler_name: str = "default-scheduler"
    lifecycle: bool = True
    claims: bool = True
    lease_seconds: float = 10.0
    status_seconds: float = 300.0
    dead_after_seconds: float = 40.0
    eviction_seconds: float | None = None
    concurrency: int = 16
    processes: Path | None = None
    kubelet_port: int = 0
    kubelet_certificate: str = ""

    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes, by number."""
        return tuple(f"{self.prefix}{number}" for number in range(self.first, self.end))

    @property
    def end(self) -> int:
        """The number after the last node's."""
        return self.first + self.nodes


def to_text(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is stored."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_text(moment: datetime) -> str:
    """RFC 3339 in microseconds, as metav1.MicroTime is stored."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Aware UTC time of either form. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
