"""glue: outages of components, from checks every 30 s.

A component that is down in every check for PATIENCE has an outage, and subscribers are notified.
Shorter outages are dropped, so a flapping component does not send a message each time. Members of a
component, such as the V-IPU agents of one controller, each have their own outage. Outages that
begin within PATIENCE of each other are one episode: a machine room without power is one message.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from dashboard.components import DOWN, UNKNOWN, UP, enumerated, name_members
from dashboard.health import read_recorded
from ipuhub.models import ComponentOutage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dashboard.components import Component

PATIENCE: Final = dt.timedelta(minutes=3)
KEPT: Final = dt.timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Episode:
    """Outages of one component that are reported as one outage. `members`: which are down, or
    were."""

    name: str
    began_at: dt.datetime
    noticed_at: dt.datetime
    ended_at: dt.datetime | None
    detail: str
    members: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Return the name of the component that is down."""
        return name_members(self.name, self.members) if self.members else self.name

    @property
    def verb(self) -> str:
        return "are" if len(self.members) > 1 else "is"


def record_outages(now: dt.datetime) -> None:
    """Begin outages of components that are down, and end outages of components that are up again.

    A component whose state is unknown keeps its outage, but not an outage that is younger than
    PATIENCE: the observer itself may be down. The outage of a component or member that no longer
    exists, such as a V-IPU controller taken off the list or a removed agent, is forgotten.
    """
    found = {component.name: component for component in read_recorded(now)}
    opened = list(ComponentOutage.objects.filter(ended_at=None))
    _begin([each for each in found.values() if each.state == DOWN], opened, now)
    over, untold = [], []
    for outage in opened:
        state = _state_of(found.get(outage.name), outage.member)
        if state is None or (state != DOWN and now - outage.since < PATIENCE):
            untold.append(outage.pk)
        elif state == UP:
            over.append(outage.pk)
    ComponentOutage.objects.filter(pk__in=untold).delete()
    ComponentOutage.objects.filter(pk__in=over, ended_at=None).update(ended_at=now)
    ComponentOutage.objects.filter(ended_at__lt=now - KEPT).delete()


def _state_of(component: Component | None, member: str) -> str | None:
    """Return the state of a component or of this member; None: it does not exist any more."""
    if component is None:
        return None
    if not member or component.state == UNKNOWN:
        return component.state
    if member not in component.members:
        return None
    return DOWN if member in component.absent else UP


def _begin(down: list[Component], opened: list[ComponentOutage], now: dt.datetime) -> None:
    known = {(each.name, each.member) for each in opened}
    young = [each for each in opened if now - each.episode < PATIENCE]
    rows = [
        ComponentOutage(
            name=each.name,
            member=member,
            episode=min(
                (outage.episode for outage in young if outage.name == each.name), default=now
            ),
            since=now,
            detail="does not answer" if member else each.detail,
        )
        for each in down
        for member in each.absent or ("",)
        if (each.name, member) not in known
    ]
    # Another process may have begun an outage in between: the constraint decides.
    ComponentOutage.objects.bulk_create(rows, ignore_conflicts=True)


def read_episodes(now: dt.datetime, ended_after: dt.datetime) -> Iterator[Episode]:
    """Yield the episodes of which each outage lasted PATIENCE and that last, or ended after that
    time; oldest first."""
    recent = ComponentOutage.objects.filter(Q(ended_at=None) | Q(ended_at__gte=ended_after))
    wanted = set(recent.values_list("episode", "name"))
    rows = ComponentOutage.objects.filter(episode__in={began_at for began_at, _ in wanted})
    ordered = rows.order_by("episode", "name", "id")
    for key, outages in groupby(ordered, lambda row: (row.episode, row.name)):
        if key in wanted and (episode := _joined_episode(list(outages))).noticed_at <= now:
            yield episode


def _joined_episode(outages: Sequence[ComponentOutage]) -> Episode:
    first = outages[0]
    lasting = [each for each in outages if each.ended_at is None]
    ended_at = None if lasting else max(each.ended_at for each in outages if each.ended_at)
    members = tuple(each.member for each in lasting or outages if each.member)
    return Episode(
        name=first.name,
        began_at=first.episode,
        noticed_at=max(each.since for each in outages) + PATIENCE,
        ended_at=ended_at,
        detail=enumerated(members) if len(members) > 1 else first.detail,
        members=members,
    )
