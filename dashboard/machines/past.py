"""io: the last day of an IPU-Machine: its partitions, outages, cordons and faults.

A composition root: joins partitions and what the dashboard observes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from dashboard.components import names_of
from dashboard.machines.incidents import WHOLE
from ipuhub.models import ComponentOutage, MachineIncident
from partitions.selectors import MachinePlace, partitions_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ipuhub.web.access import Scope
    from partitions.models import PartitionLifetime

A_DAY: Final = timedelta(days=1)
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Stay:
    """A partition that stood on the machine; `ipus`: how many of its IPUs, of `partition.size`."""

    partition: PartitionLifetime
    ipus: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the machine; `is_bad`: something stopped."""

    at: datetime
    what: str
    is_bad: bool


def read_stays(
    scope: Scope, controller: str, machine: str, now: datetime, position: int | None = None
) -> Sequence[Stay]:
    """Return the visible partitions of the last day that stood on a machine, or on one IPU of it,
    newest first."""
    place = MachinePlace(controller, machine, position)
    newest = partitions_on(scope, place, now - A_DAY, _SHOWN)
    return [Stay(row, len(row.machines[machine])) for row in newest]


def read_events(
    controller: str, machine: str, now: datetime, device: int | None = None
) -> Sequence[Event]:
    """Return what happened to a machine, or to one IPU of it, in the last day, newest first:
    outages of its agent and its controller, cordons and faults, their beginnings and ends."""
    found = [*_outages(controller, machine, now), *_incidents(controller, machine, now, device)]
    return sorted(found, key=lambda event: event.at, reverse=True)


def _outages(controller: str, machine: str, now: datetime) -> Iterator[Event]:
    server, agents = names_of(controller)
    theirs = Q(name=server, member="") | Q(name=agents, member=machine)
    rows = ComponentOutage.objects.filter(theirs, _recent(now)).order_by("-since")
    for row in rows[:_SHOWN]:
        who = "Its agent" if row.member else "Its V-IPU controller"
        yield Event(row.since, f"{who} stopped answering", is_bad=True)
        if row.ended_at is not None:
            yield Event(row.ended_at, f"{who} answers again", is_bad=False)


def _incidents(controller: str, machine: str, now: datetime, device: int | None) -> Iterator[Event]:
    rows = MachineIncident.objects.filter(_recent(now), controller=controller, machine=machine)
    if device is not None:
        rows = rows.filter(device__in=(WHOLE, device))
    for row in rows.order_by("-since")[:_SHOWN]:
        is_cordon = row.device == WHOLE
        yield Event(row.since, row.what, is_bad=True)
        if row.ended_at is not None:
            end = "No longer cordoned" if is_cordon else f"IPU {row.device} works again"
            yield Event(row.ended_at, end, is_bad=False)


def _recent(now: datetime) -> Q:
    return Q(ended_at=None) | Q(ended_at__gte=now - A_DAY)
