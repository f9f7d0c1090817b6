"""domain: the numbers of `/stats` and `/query`, in the exact form of the original proxy.

Also `/v1/controllers`, for the dashboard and for curl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ipuhub.partition import Phase
from partitions.proxy.controllers import never_fits, stale, unlabelled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.drift import Drift
    from partitions.proxy.lifecycle import TrackerEntry

TOTAL = "total"


class Usage(TypedDict):
    """IPUs held by partitions of jobs, and IPUs free in the whole fleet."""

    used: int
    available: int


class Fit(TypedDict):
    """`available`: some controller answered; how many partitions fit now; a sentence or nothing."""

    available: bool
    numOfPartitions: int
    message: str


def stats(entries: Iterable[TrackerEntry], views: Collection[ControllerView]) -> dict[str, Usage]:
    """`used` per namespace that has partitions, and in total; keys in the order of their output.

    Partitions made by hand are in no `used` but lower `available`, in which the IPUs that no node
    reaches are not: no job can get them.
    """
    listed = {
        view.spec.address: {partition.id for partition in view.partitions}
        for view in views
        if view.is_reachable
    }
    used: dict[str, int] = {}
    for entry in entries:
        if _is_held(entry, listed.get(entry.controller)):
            used[entry.namespace] = used.get(entry.namespace, 0) + entry.size
    free = sum(view.free for view in views if view.has_node)
    answer = {space: Usage(used=used[space], available=free) for space in sorted(used)}
    # A namespace may be called "total"; the sum wins, as nothing else tells the two apart.
    answer.pop(TOTAL, None)
    answer[TOTAL] = Usage(used=sum(used.values()), available=free)
    return answer


def query(views: Sequence[ControllerView], size: int) -> Fit:
    """How many partitions of `size` (at least 1) fit now by the placement rule, all at once.

    The message is empty unless somebody has something to mend, or the size can never be had.
    """
    answered = any(view.is_reachable for view in views)
    if not answered:
        problems = "; ".join(view.problem for view in views) or "none is configured"
        message = f"no V-IPU controller answers: {problems}"
        return Fit(available=False, numOfPartitions=0, message=message)
    fitting = sum(view.fitting(size) for view in views if view.has_node)
    sentences = (never_fits(views, size) or unlabelled(views), stale(views))
    message = "; ".join(filter(None, sentences))
    return Fit(available=True, numOfPartitions=fitting, message=message)


def _is_held(entry: TrackerEntry, listed: Collection[str] | None) -> bool:
    """Whether the entry's partition exists; where its controller is silent, the tracker counts."""
    if entry.phase is Phase.RELEASED:
        return False
    if listed is None:
        return entry.phase is not Phase.RESERVING
    return entry.id in listed


def controllers_to_json(
    views: Sequence[ControllerView],
    entries: Iterable[TrackerEntry],
    drift: Drift,
    problem: str,
) -> dict[str, Any]:
    """The controllers in the order of the list, then those that drain; `problem` of the list.

    `total`, `free`, `cordoned` (free, but no node has the controller's label) and `faulty` (in
    partitions that are in ERROR) count IPUs; all but `cordoned` are null where the controller does
    not answer. `untracked` counts the partitions that no job holds.
    """
    live = [entry for entry in entries if entry.phase is not Phase.RELEASED]
    listed = {view.spec.address for view in views}
    draining = {e.controller: e.label for e in live if e.controller not in listed}
    counts = drift.untracked_by_controller

    def common(address: str, label: str) -> dict[str, Any]:
        key, _, value = label.partition("=")
        return {
            "address": address,
            "nodeSelector": {key: value},
            "partitions": sum(entry.controller == address for entry in live),
            "untracked": counts.get(address, 0),
        }

    items = [
        {
            **common(view.spec.address, view.spec.label),
            "reachable": view.is_reachable,
            "message": view.problem,
            "hasNode": view.has_node,
            "draining": False,
            "total": view.total if view.is_reachable else None,
            "free": (view.free if view.has_node else 0) if view.is_reachable else None,
            "cordoned": 0 if view.has_node else view.free,
            "faulty": view.faulty if view.is_reachable else None,
        }
        for view in views
    ]
    items += [
        {
            **common(address, label),
            "reachable": None,
            "message": "off the list: takes no new partitions",
            "hasNode": None,
            "draining": True,
            "total": None,
            "free": None,
            "cordoned": 0,
            "faulty": None,
        }
        for address, label in sorted(draining.items())
    ]
    return {"items": items, "problem": problem}
