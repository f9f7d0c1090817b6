"""domain: the division of the demo's IPU-Machines among V-IPU controllers, and their ports.

A small demo has one controller and one cluster. A fleet has a controller for two racks; each rack
is a cluster of one IPU-Link domain, with an allocation of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RACK_MACHINES: Final = 16
CONTROLLER_MACHINES: Final = 2 * RACK_MACHINES
_LABEL: Final = "vipu-ctrl"
_FIRST_PORT: Final = 8090
_CALLS_A_SECOND: Final = 256  # of all machines together
_LONGEST_HEARTBEAT: Final = 5.0  # that vipu-server takes


@dataclass(frozen=True, slots=True)
class DemoController:
    """One V-IPU controller: its number (0, 1, ...), its machines, and the purpose of its ports."""

    number: int
    first_machine: int
    machines: int
    is_of_fleet: bool

    @property
    def purpose(self) -> str:
        """Return the purpose of its port for users, as the file of ports names it."""
        return "V-IPU" + (f" {self.number + 1}" if self.number else "")

    @property
    def admin_purpose(self) -> str:
        """The same of its admin port."""
        return f"{self.purpose} admin"

    @property
    def process(self) -> str:
        """The name of its process."""
        return "vipu-server" + (f"-{self.number + 1}" if self.number else "")

    @property
    def storage(self) -> str:
        """The name of its state file: a fleet does not fit the file of a small demo."""
        return f"vipu-fleet-{self.number + 1}.json" if self.is_of_fleet else "vipu-server.json"

    @property
    def label(self) -> str:
        """The label of the nodes that reach its IPUs."""
        return f"{_LABEL}=vctl{self.number if self.is_of_fleet else 1}"

    @property
    def layout(self) -> tuple[str, ...]:
        """The options of vipu-server about clusters and allocations."""
        if not self.is_of_fleet:
            return ()
        racks = range(self.first_machine // RACK_MACHINES, self._end // RACK_MACHINES)
        clusters = ",".join(f"rack{rack}" for rack in racks)
        return ("--cluster", clusters, "--allocation", clusters)

    @property
    def _end(self) -> int:
        return self.first_machine + self.machines


def controllers_of(machines: int, *, is_fleet: bool) -> list[DemoController]:
    """The controllers of so many machines; raises ValueError for a fleet of half a controller."""
    if not is_fleet:
        return [DemoController(0, 0, machines, is_of_fleet=False)]
    if machines < CONTROLLER_MACHINES or machines % CONTROLLER_MACHINES:
        raise ValueError(
            f"a fleet has {CONTROLLER_MACHINES} IPU-Machines for each controller (two racks): "
            f"write {CONTROLLER_MACHINES}, {2 * CONTROLLER_MACHINES}, ..., not {machines}"
        )
    return [
        DemoController(number, first, CONTROLLER_MACHINES, is_of_fleet=True)
        for number, first in enumerate(range(0, machines, CONTROLLER_MACHINES))
    ]


def ports_of(controllers: list[DemoController]) -> dict[str, int]:
    """The wanted ports of further controllers; the ports of the first controller are the demo's
    own."""
    return {
        purpose: _FIRST_PORT + 2 * controller.number + offset
        for controller in controllers[1:]
        for offset, purpose in enumerate((controller.purpose, controller.admin_purpose))
    }


def heartbeat_options(machines: int) -> tuple[str, ...]:
    """The options of vipu-server about the calls of agents.

    One process of this computer is the agents of all machines: calls of each machine every second
    would take the time of more than a core at 1,024 machines, and where they came too late all
    machines were lost at once.
    """
    heartbeat = min(max(1.0, machines / _CALLS_A_SECOND), _LONGEST_HEARTBEAT)
    if heartbeat == 1:
        return ()
    lost = 5 * heartbeat
    return ("--agent-heartbeat-seconds", f"{heartbeat:g}", "--agent-lost-seconds", f"{lost:g}")


def node_options(controllers: list[DemoController]) -> tuple[str, ...]:
    """The options of run_kubelet about the stand-in nodes.

    Of a fleet each controller has a node of its own, which takes the place of all hosts of two
    racks: it has room for a launcher and a worker of each IPU.
    """
    if not controllers[0].is_of_fleet:
        return ("--label", controllers[0].label)
    room = ("--cpu", "1024", "--memory", "4Ti", "--pods", "512")
    return ("--label", f"{_LABEL}=vctl{{i}}", *room)
