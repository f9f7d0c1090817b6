"""Fleets of equal IPU-Machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitions.vipu.topology import fleet_of_parts

if TYPE_CHECKING:
    from partitions.vipu.topology import Topology


def fleet_of_machines(
    machines: int, ipus_per_machine: int = 4, *, cluster: str = "", allocation: str = ""
) -> Topology:
    """IPU-Machines with agents ag0, ag1, ...; a domain is full at 64 IPUs."""
    return fleet_of_parts(machines, ipus_per_machine, [(cluster, allocation)])
