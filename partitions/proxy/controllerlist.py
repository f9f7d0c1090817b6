"""domain: `/v1/controllers`, for the dashboard and for people with curl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partitions.proxy.lifecycle import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.drift import Drift
    from partitions.proxy.tracker import TrackerEntry


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
