"""domain: differences between the tracker and the V-IPU controllers.

Also whether a partition under the expected id can be the partition that was made for an entry.
V-IPU stores no owner, and another cluster or a person can use the same id. So the listed properties
are compared with the request.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from partitions.proxy.lifecycle import may_heal
from partitions.proxy.tombstones import is_waiting
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from partitions.proxy.controllers import ControllerView, PartitionSettings
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.vipu.topology import IpuId
    from partitions.vipu.types import VipuPartition

_DIGITS = 6  # an id in full may be longer than an entry of the tracker has room for


def scope_of_settings(settings: PartitionSettings) -> str:
    """Return in which cluster and allocation `settings` ask for partitions, as digests."""
    parts = (settings.cluster_id, settings.allocation_id)
    return "/".join(map(_digest, parts)) if any(parts) else ""


def terms_of(settings: PartitionSettings, num_gcds: int) -> str:
    """Return with how many GCDs (none: V-IPU's choice) and how `settings` ask for partitions;
    `num_gcds` is the job's own number. `r` is reconfigurable, `s` is not."""
    return f"{num_gcds or settings.num_gcds or ''}{'r' if settings.reconfigurable else 's'}"


def mismatch(entry: TrackerEntry, found: VipuPartition) -> str:
    """Return why `found`, which has the entry's id, is not the entry's partition; empty: it can be.

    Properties that were not requested, or that the entry or V-IPU does not know, are not compared.
    """
    if found.size != entry.size:
        return f"{found.id} has {found.size} IPUs, not {entry.size}: it is not this job's"
    cluster, _, allocation = entry.scope.partition("/")
    if _differs(cluster, found.cluster_id):
        return f"{found.id} is in another cluster, {found.cluster_id}: it is not this job's"
    if _differs(allocation, found.allocation_id):
        return f"{found.id} is in another allocation, {found.allocation_id}: it is not this job's"
    return ""


def late_mismatch(tomb: TrackerEntry, found: VipuPartition) -> str:
    """Return the same for a partition that may have appeared after its release. It is removed
    without confirmation only if all properties match the request. The controller's current settings
    are no evidence."""
    noted, how = tomb.terms[:-1], tomb.terms[-1:]
    wanted = int(noted) if noted.isdecimal() else tomb.num_gcds
    if wanted and found.num_gcds != wanted:
        return f"{found.id} has {found.num_gcds} GCDs, not {wanted}: it is not this job's"
    if how in {"r", "s"} and found.reconfigurable != (how == "r"):
        return f"{found.id} was made with other settings: it is not this job's"
    return mismatch(tomb, found)


def _differs(expected: str, found: str) -> bool:
    return bool(expected and found) and expected != _digest(found)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:_DIGITS] if name else ""


@dataclass(frozen=True, slots=True)
class Drift:
    """The result of a comparison, by entry or, for `untracked`, as (controller, partition id).

    `unfinished` wait for a next step, `lost` are active here and unknown to their controller,
    `faulty` are active here and in ERROR there, `replaced` have a stranger's partition in their
    place, with a sentence. `healed` are in ERROR here and ACTIVE there. `late` are tombstones of
    partitions that came after their release, `absent` tombstones without such a partition yet.
    """

    unfinished: tuple[TrackerEntry, ...] = ()
    lost: tuple[TrackerEntry, ...] = ()
    faulty: tuple[TrackerEntry, ...] = ()
    replaced: tuple[tuple[TrackerEntry, str], ...] = ()
    healed: tuple[TrackerEntry, ...] = ()
    late: tuple[TrackerEntry, ...] = ()
    absent: tuple[TrackerEntry, ...] = ()
    untracked: tuple[tuple[str, str], ...] = ()

    @property
    def untracked_by_controller(self) -> Mapping[str, int]:
        """Return the number of each controller's partitions that a person or another cluster
        made."""
        counts: dict[str, int] = {}
        for address, _ in self.untracked:
            counts[address] = counts.get(address, 0) + 1
        return counts


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's status names the partition: an instance of it held it in this attempt."""

    uid: str
    namespace: str
    name: str
    instance: int
    attempt: int


@dataclass(frozen=True, slots=True)
class UntrackedPartition:
    """A partition that no entry has; `claim`: whose it seems to be."""

    controller: str
    label: str
    id: str
    size: int
    claim: Claim | None = None


def compare(entries: Iterable[TrackerEntry], views: Iterable[ControllerView]) -> Drift:
    """Compare entries with the controllers' lists; a silent controller proves nothing.

    The views must be younger than the entries, or a partition made in between looks lost.
    """
    reached = {view.spec.address: view for view in views if view.is_reachable}
    listed = {address: view.by_id for address, view in reached.items()}
    entries = list(entries)
    denied = contradicted(entries, listed)
    live = [entry for entry in entries if entry.phase is not Phase.RELEASED]
    known = {(entry.controller, entry.id) for entry in live}
    active = [e for e in live if e.phase is Phase.ACTIVE and e.controller in listed]
    waiting = [e for e in entries if is_waiting(e) and e.controller in reached]
    late = tuple(_late(waiting, known, reached))
    known |= {(entry.controller, entry.id) for entry in late}
    return Drift(
        unfinished=tuple(entry for entry in live if not entry.phase.is_settled),
        lost=tuple(entry for entry in active if entry.id not in listed[entry.controller]),
        faulty=denied.faulty,
        replaced=denied.replaced,
        healed=tuple(_healed(entries, listed)),
        late=late,
        absent=tuple(entry for entry in waiting if entry not in late),
        untracked=tuple(
            sorted(
                (address, partition_id)
                for address, partitions in listed.items()
                for partition_id in partitions
                if (address, partition_id) not in known
            )
        ),
    )


def contradicted(
    entries: Iterable[TrackerEntry], listed: Mapping[str, Mapping[str, VipuPartition]]
) -> Drift:
    """Return the entries that lists, by controller and id, contradict: `faulty` and `replaced`
    only. A listed partition is certain; a missing partition may be due to a controller that is
    starting.

    The lists must be younger than the entries.
    """
    faulty, replaced = [], []
    for entry in entries:
        found = listed.get(entry.controller, {}).get(entry.id)
        if found is None or entry.phase is not Phase.ACTIVE:
            continue
        if reason := mismatch(entry, found):
            replaced.append((entry, reason))
        elif found.ready_state is ReadyState.ERROR:
            faulty.append(entry)
    return Drift(faulty=tuple(faulty), replaced=tuple(replaced))


def why_lost(entry: TrackerEntry, ipus: Iterable[IpuId], view: ControllerView | None) -> str:
    """Return the sentence about a partition that is gone, with what is said of the IPUs that it
    had: an administrator may have drained their machine."""
    closed = view.topology.closed if view and view.topology else {}
    causes = dict.fromkeys(closed[ipu].fault or closed[ipu].cordon for ipu in ipus if ipu in closed)
    return "; ".join((f"{entry.controller} no longer knows partition {entry.id}", *causes))


def _healed(
    entries: Iterable[TrackerEntry], listed: Mapping[str, Mapping[str, VipuPartition]]
) -> Iterator[TrackerEntry]:
    """Yield what is in ERROR here and works there.

    The regular comparison alone looks for it: a partition that fails and works in turn would
    otherwise end each pause of its job at once.
    """
    for entry in entries:
        found = listed.get(entry.controller, {}).get(entry.id)
        if found is None or not may_heal(entry) or mismatch(entry, found):
            continue
        if found.ready_state is ReadyState.ACTIVE:
            yield entry


def _late(
    waiting: Iterable[TrackerEntry],
    known: Collection[tuple[str, str]],
    reached: Mapping[str, ControllerView],
) -> Iterator[TrackerEntry]:
    """Tombstones whose partition exists: V-IPU created it after it was no longer wanted."""
    found: set[tuple[str, str]] = set()
    for entry in waiting:
        where, view = (entry.controller, entry.id), reached[entry.controller]
        partition = view.by_id.get(entry.id)
        if partition is None or where in known or where in found:
            continue
        if not late_mismatch(entry, partition):
            found.add(where)
            yield entry
