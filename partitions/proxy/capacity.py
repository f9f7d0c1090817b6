"""domain: the numbers of `/stats` and `/query`, in the exact form of the original proxy.

Also the additional fields of both for clients that request details, and `/v1/controllers`, for the
dashboard and for curl. Details name V-IPU controllers but no jobs or partitions, because everybody
may read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ipuhub.partition import Phase
from ipuhub.times import format_time
from partitions.proxy.shortage import explain_shortage, never_fits
from partitions.vipu.topology import PARTITION_SIZES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from partitions.proxy.circuit import CircuitFacts
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.drift import Drift
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.vipu.topology import Block

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
    listed = {view.spec.address: view.partition_ids for view in views if view.is_reachable}
    used: dict[str, int] = {}
    for entry in entries:
        if _is_held(entry, listed.get(entry.controller)):
            used[entry.namespace] = used.get(entry.namespace, 0) + entry.size
    free = sum(view.free for view in views if view.has_node)
    answer = {space: Usage(used=used[space], available=free) for space in sorted(used)}
    # A namespace may be called "total"; the sum wins, because nothing else distinguishes the two.
    answer.pop(TOTAL, None)
    answer[TOTAL] = Usage(used=sum(used.values()), available=free)
    return answer


def query(views: Sequence[ControllerView], size: int, count: int = 1) -> Fit:
    """Return how many partitions of `size` (at least 1) fit now by the placement rule, all at once.

    The message is empty unless a person has to fix something, the size can never fit, or fewer than
    a `count` above 1 fit.
    """
    answered = any(view.is_reachable for view in views)
    if not answered:
        problems = "; ".join(view.problem for view in views) or "none is configured"
        message = f"no V-IPU controller answers: {problems}"
        return Fit(available=False, numOfPartitions=0, message=message)
    fitting = sum(view.fitting(size) for view in views if view.has_node)
    sentences = (
        never_fits(views, size) or _unlabelled(views),
        f"{fitting} of {count} partitions fit now" if fitting < count > 1 else "",
        _stale(views),
        "; ".join(view.message for view in views if not view.creates),
    )
    message = "; ".join(filter(None, sentences))
    return Fit(available=True, numOfPartitions=fitting, message=message)


def _stale(views: Sequence[ControllerView]) -> str:
    """Return a sentence about controllers of which only older numbers are known; "" if there are
    none."""
    return "; ".join(
        f"as of {view.age_seconds:.0f} s ago, since a V-IPU controller does not answer: "
        f"{view.problem}"
        for view in views
        if view.age_seconds
    )


def _unlabelled(views: Sequence[ControllerView]) -> str:
    """Return a sentence about controllers whose IPUs no job can get; "" if there are none."""
    found = [view for view in views if not view.has_node]
    if not found:
        return ""
    labels = ", ".join(sorted({view.spec.label for view in found}))
    addresses = ", ".join(view.spec.address for view in found)
    return f"no job can use the IPUs of {addresses}: label a node with {labels}"


def stats_in_detail(
    usage: Mapping[str, Usage], views: Sequence[ControllerView], drift: Drift
) -> dict[str, Any]:
    """The numbers of `/stats` with the controllers, how many partitions of each size fit now, and
    how many differences the last sweep found between tracker and controllers."""
    reached = [view for view in views if view.has_node]
    return {
        "namespaces": {space: used for space, used in usage.items() if space != TOTAL},
        "total": usage[TOTAL],
        "controllers": [
            _controller(view)
            | {
                "totalIpus": view.total,
                "usedIpus": view.total - view.free,
                "faultyIpus": view.faulty,
            }
            for view in views
        ],
        "sizes": [
            {"size": size, "numOfPartitions": sum(view.fitting(size) for view in reached)}
            for size in PARTITION_SIZES
        ],
        "drift": {
            "unfinished": len(drift.unfinished),
            "lost": len(drift.lost),
            "faulty": len(drift.faulty),
            "replaced": len(drift.replaced),
            "late": len(drift.late),
            "untracked": len(drift.untracked),
        },
    }


def query_in_detail(views: Sequence[ControllerView], size: int) -> dict[str, Any]:
    """For each controller how many partitions of `size` fit and which blocks are free, and why the
    next larger size does not fit."""
    reached = [view for view in views if view.has_node]
    fitting = [each for each in PARTITION_SIZES if any(view.fitting(each) for view in reached)]
    largest = max(fitting, default=0)
    larger = next((each for each in PARTITION_SIZES if each > largest), None)
    reason = "" if larger is None else explain_shortage(views, larger).message
    return {
        "largestFitting": largest,
        "whyNotLarger": reason,
        "controllers": [
            _controller(view)
            | {
                "numOfPartitions": view.fitting(size) if view.has_node else 0,
                "freeBlocks": [_block(block) for block in view.free_blocks],
            }
            for view in views
        ],
    }


def _controller(view: ControllerView) -> dict[str, Any]:
    return {
        "address": view.spec.address,
        "label": view.spec.label,
        "reachable": view.is_reachable,
        "message": view.message,
        "hasNode": view.has_node,
        "freeIpus": view.free,
        "ageSeconds": round(view.age_seconds),
        "circuit": _circuit(view.circuit),
    }


def _circuit(facts: CircuitFacts) -> dict[str, Any]:
    """The circuit breaker; `since` when no calls are sent, and when one tries next; the same of the
    kinds of order that are not sent although other calls are."""
    orders = [{"calls": order.calls.value, **_state(order)} for order in facts.orders]
    return {**_state(facts), "orders": orders}


def _state(facts: CircuitFacts) -> dict[str, str | None]:
    return {
        "state": facts.state.value,
        "since": format_time(facts.since) if facts.since else None,
        "nextTry": format_time(facts.next_try) if facts.next_try else None,
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "cluster": block.cluster,
        "ipuLinkDomain": block.domain,
        "start": block.start,
        "size": block.size,
    }


def _is_held(entry: TrackerEntry, listed: Collection[str] | None) -> bool:
    """Return whether the entry's partition exists; where its controller is silent, the tracker
    counts."""
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

    `total`, `free`, `cordoned` (free, but the machine is cordoned or no node has the controller's
    label) and `faulty` (in partitions that are in ERROR, or broken and free) count IPUs; all but
    `cordoned` are null where the controller does not answer. `untracked` counts the partitions that
    no job holds.
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
            "message": view.message,
            "circuit": _circuit(view.circuit),
            "hasNode": view.has_node,
            "draining": False,
            "total": view.total if view.is_reachable else None,
            "free": (view.free if view.has_node else 0) if view.is_reachable else None,
            "cordoned": view.cordoned,
            "faulty": view.faulty if view.is_reachable else None,
        }
        for view in views
    ]
    items += [
        {
            **common(address, label),
            "reachable": None,
            "message": "off the list: takes no new partitions",
            "circuit": None,
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
