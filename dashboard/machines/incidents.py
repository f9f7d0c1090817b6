"""glue: cordons of IPU-Machines and faults of their IPUs over time, from checks of the fleet every
30 s.

An incident shorter than that can be missing. An agent that does not answer is an outage of a
component (`dashboard.notify.outages`).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, TypeAlias

from django.db import transaction

from ipuhub.models import MachineIncident

if TYPE_CHECKING:
    from partitions.fleetjson import FleetJson, MachineJson

WHOLE: Final = -1
"""As a device: the whole machine, which alone can be cordoned."""
KEPT: Final = dt.timedelta(days=60)

_Key: TypeAlias = tuple[str, str, int]


def incidents_of(fleet: FleetJson) -> dict[_Key, str]:
    """Return why IPUs get no new partition, by controller, machine and device."""
    found: dict[_Key, str] = {}
    for address, machine in _told(fleet):
        agent, is_lost = machine["agent"], bool(machine.get("lost"))
        for number, ipu in enumerate(machine["ipus"]):
            if cordon := ipu.get("cordon"):
                found[address, agent, WHOLE] = cordon
            if (fault := ipu.get("fault")) and not is_lost:  # a lost machine only says that it is
                found[address, agent, ipu.get("device", number)] = fault
    return found


@transaction.atomic
def record_incidents(fleet: FleetJson, now: dt.datetime) -> None:
    """Begin incidents that the fleet reports at `now`, and end incidents that it no longer reports.

    What is unknown, because a controller or an agent does not answer, stays unchanged.
    """
    if "controllers" not in fleet:
        return
    found = incidents_of(fleet)
    opened = {_key_of(row): row for row in MachineIncident.objects.filter(ended_at=None)}
    silent = {each["address"] for each in fleet["controllers"] if not each["reachable"]}
    lost = {(address, machine["agent"]) for address, machine in _told(fleet) if machine.get("lost")}
    over = [
        row.pk
        for key, row in opened.items()
        if found.get(key) != row.what
        and row.controller not in silent
        and (row.device == WHOLE or key[:2] not in lost)
    ]
    MachineIncident.objects.filter(pk__in=over, ended_at=None).update(ended_at=now)
    MachineIncident.objects.bulk_create(
        [
            MachineIncident(controller=key[0], machine=key[1], device=key[2], what=what, since=now)
            for key, what in found.items()
            if key not in opened or opened[key].what != what
        ],
        ignore_conflicts=True,  # of another process that has just begun the same
    )
    MachineIncident.objects.filter(ended_at__lt=now - KEPT).delete()


def _key_of(row: MachineIncident) -> _Key:
    return row.controller, row.machine, row.device


def _told(fleet: FleetJson) -> list[tuple[str, MachineJson]]:
    """Return the machines of controllers that answer and name them, each with its controller."""
    return [
        (each["address"], machine)
        for each in fleet.get("controllers") or []
        if each["reachable"]
        for machine in each["machines"]
        if machine["agent"]
    ]
