"""domain: the controller that an agent obeys: one at a time, while it calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from partitions.vipu.errors import NotReady

if TYPE_CHECKING:
    from datetime import datetime

# Names of headers of a call; a controller's id stays the same across its restarts.
CONTROLLER_HEADER: Final = "ipuhub-controller"
TAKE_OVER_HEADER: Final = "ipuhub-take-over"
# A controller calls at least every 5 s: one that has not called for so long has ended.
HELD_FOR: Final = timedelta(seconds=15)
_MOST_HOSTS: Final = 8
_LONGEST_ID: Final = 64  # of an id that is repeated to others


@dataclass(frozen=True, slots=True)
class Holder:
    """A controller's id, and when it called last; two at once would free each other's IPUs."""

    controller: str
    heard_at: datetime

    def is_there(self, now: datetime) -> bool:
        """Return whether the controller still calls."""
        return now - self.heard_at < HELD_FOR


@dataclass(slots=True)
class RefusedHosts:
    """The hosts of refused controllers, for one sentence about each; of 8 at most, since a
    caller of an agent may use as many hosts, and as many ids, as it likes."""

    _known: set[str] = field(default_factory=set)

    def is_new(self, host: str) -> bool:
        """Return whether no sentence named this host yet, and count it as named."""
        if host in self._known or len(self._known) >= _MOST_HOSTS:
            return False
        self._known.add(host)
        return True

    def forget(self) -> None:
        """Begin again."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class Rival:
    """A controller that was refused, and the host that it called from."""

    controller: str
    host: str


def rival_of(controller: str, peer: str) -> Rival:
    """Return the rival of this id; `peer` as gRPC names a caller: ipv4:10.0.0.1:53422."""
    host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
    return Rival(controller[:_LONGEST_ID], host or peer)


def next_holder(
    known: Holder | None, controller: str, now: datetime, *, takes_over: bool
) -> Holder | None:
    """Return who holds the agent after a call of this controller; a caller without an id, as a
    person, leaves it as it is. Raises NotReady while another controller calls."""
    if not controller:
        return known
    if known and known.controller != controller and known.is_there(now) and not takes_over:
        raise NotReady(
            f"another V-IPU controller ({known.controller}) uses this agent: stop one of the two, "
            "or start vipu-server with --take-over-agents"
        )
    return Holder(controller, now)
