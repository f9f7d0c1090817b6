"""io: the last day of an IPU-Machine: partitions that stood on it, and outages of its agent.

A composition root: joins partitions and what the dashboard observes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from dashboard.components import names_of
from ipuhub.models import ComponentOutage
from partitions.selectors import MachinePlace, partitions_on

if TYPE_CHECKING:
    from collections.abc import Sequence
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


def read_events(controller: str, machine: str, now: datetime) -> Sequence[Event]:
    """Return the outages of a machine's agent and of its controller in the last day, newest first:
    their beginnings and ends."""
    server, agents = names_of(controller)
    theirs = Q(name=server, member="") | Q(name=agents, member=machine)
    recent = Q(ended_at=None) | Q(ended_at__gte=now - A_DAY)
    found = []
    for row in ComponentOutage.objects.filter(theirs, recent).order_by("-since")[:_SHOWN]:
        who = "Its agent" if row.member else "Its V-IPU controller"
        found.append(Event(row.since, f"{who} stopped answering", is_bad=True))
        if row.ended_at is not None:
            found.append(Event(row.ended_at, f"{who} answers again", is_bad=False))
    return sorted(found, key=lambda event: event.at, reverse=True)
