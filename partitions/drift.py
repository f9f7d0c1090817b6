"""domain: where the tracker and the V-IPU controllers disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from partitions.lifecycle import Phase
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from partitions.controllers import ControllerView
    from partitions.tracker import TrackerEntry


@dataclass(frozen=True, slots=True)
class Drift:
    """What a comparison found, by entry or, for `untracked`, as (controller, partition id).

    `unfinished` wait for a next step, `lost` are active here and unknown to their controller,
    `faulty` are active here and in ERROR there, `resized` have another size there.
    """

    unfinished: tuple[TrackerEntry, ...] = ()
    lost: tuple[TrackerEntry, ...] = ()
    faulty: tuple[TrackerEntry, ...] = ()
    resized: tuple[TrackerEntry, ...] = ()
    untracked: tuple[tuple[str, str], ...] = ()

    @property
    def untracked_by_controller(self) -> Mapping[str, int]:
        """How many partitions of each controller are a person's or another cluster's."""
        counts: dict[str, int] = {}
        for address, _ in self.untracked:
            counts[address] = counts.get(address, 0) + 1
        return counts


def compare(entries: Iterable[TrackerEntry], views: Iterable[ControllerView]) -> Drift:
    """Compare entries with what controllers list; silent controllers prove nothing.

    The views must be younger than the entries, or a partition made in between looks lost.
    """
    listed = {
        view.spec.address: {partition.id: partition for partition in view.partitions}
        for view in views
        if view.is_reachable
    }
    live = [entry for entry in entries if entry.phase is not Phase.RELEASED]
    known = {(entry.controller, entry.id) for entry in live}
    active = [
        (entry, listed[entry.controller].get(entry.id))
        for entry in live
        if entry.phase is Phase.ACTIVE and entry.controller in listed
    ]
    present = [(entry, found) for entry, found in active if found is not None]
    return Drift(
        unfinished=tuple(entry for entry in live if not entry.phase.is_settled),
        lost=tuple(entry for entry, found in active if found is None),
        faulty=tuple(e for e, found in present if found.ready_state is ReadyState.ERROR),
        resized=tuple(e for e, found in present if found.size != e.size),
        untracked=tuple(
            sorted(
                (address, partition_id)
                for address, partitions in listed.items()
                for partition_id in partitions
                if (address, partition_id) not in known
            )
        ),
    )
