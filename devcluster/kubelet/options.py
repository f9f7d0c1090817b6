"""domain: options of the stand-in nodes: number, capacity, and durations of pod phases.

Also instants in the format of the Kubernetes API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that pods take where their sim/ annotations say nothing.

    `launcher` and `worker` are run times of an IPUJob's pods, `pod` of others that are not to
    run without end; `backoff` doubles at each restart up to `backoff_max`.
    """

    launcher: float = 900.0
    worker: float = 900.0
    pod: float = 900.0
    startup: float = 0.0
    backoff: float = 10.0
    backoff_max: float = 300.0


@dataclass(frozen=True, slots=True)
class StandInOptions:
    """The nodes `<prefix>0` ... and their behaviour; all times in seconds.

    `{i}` in a label value is replaced by the node's number. `scheduler` and `claims` (binding of
    volume claims) take the part of controllers that a full cluster has already. With `processes`,
    a folder, containers are processes on this machine; the nodes then show where they answer
    (`kubelet_port`) and by which certificate (PEM) to know them.
    """

    nodes: int = 4
    prefix: str = "node-"
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    durations: Durations = field(default_factory=Durations)
    scheduler: bool = True
    scheduler_name: str = "default-scheduler"
    claims: bool = True
    lease_seconds: float = 10.0
    status_seconds: float = 300.0
    concurrency: int = 16
    processes: Path | None = None
    kubelet_port: int = 0
    kubelet_certificate: str = ""

    def node_names(self) -> tuple[str, ...]:
        """Return the names of all nodes, by number."""
        return tuple(f"{self.prefix}{number}" for number in range(self.nodes))
