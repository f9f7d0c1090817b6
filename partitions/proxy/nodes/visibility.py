"""domain: the IPUs that nodes advertise, for `kubectl describe node` and sums over nodes.

Every node with a controller's label gets labels with the IPUs that it reaches. Only one node of
each controller advertises them as capacity, so that a sum over nodes counts each IPU once and
kube-scheduler does not admit them several times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RESOURCE: Final = "graphcore.ai/ipu"
LABEL_TOTAL: Final = "ipuhub.io/ipus"
LABEL_FREE: Final = "ipuhub.io/free-ipus"
# Whose numbers these are: another installation's, and a device plugin's, are never touched.
MARK_OWNER: Final = "ipuhub.io/advertised-by"
MARK_CAPACITY: Final = "ipuhub.io/advertised-controllers"
_MASTER_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
_PATHS: Final = ("capacity", "allocatable")


@dataclass(frozen=True, slots=True)
class ShownNode:
    """The labels and capacity that a node shows now. `is_usable`: it is ready and takes pods."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)
    capacity: str = ""
    allocatable: str = ""
    is_usable: bool = True

    @property
    def is_master(self) -> bool:
        """Return whether it belongs to the control plane."""
        return any(label in self.labels for label in _MASTER_LABELS)

    @property
    def has_plugin(self) -> bool:
        """Return whether another component, such as a device plugin, advertises IPUs there."""
        return MARK_CAPACITY not in self.marks and self.capacity not in {"", "0"}

    @property
    def has_ours(self) -> bool:
        """Return whether our number is there, or the zero that a starting kubelet writes for
        resources that it has read before, even if the number was removed meanwhile."""
        return MARK_CAPACITY in self.marks or {self.capacity, self.allocatable} <= {"0", ""}

    def shows(self, label: str) -> bool:
        """Return whether the IPUs of that controller are its capacity."""
        return label in self.marks.get(MARK_CAPACITY, "").split(",")


@dataclass(frozen=True, slots=True)
class Count:
    """The IPUs of one controller, behind its label. None: the controller does not answer."""

    label: str
    total: int | None
    free: int | None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Merge patches of one node; an empty patch is not written.

    A node with our number also has our mark, so that after a crash a later writer removes both.
    """

    node: str
    metadata: dict[str, Any]
    status: dict[str, Any]
    status_first: bool = False

    @property
    def patches(self) -> list[tuple[str | None, dict[str, Any]]]:
        """The patches in their order, each with the subresource that takes it."""
        both = [(None, self.metadata), ("status", self.status)]
        ordered = reversed(both) if self.status_first else both
        return [(subresource, patch) for subresource, patch in ordered if patch]


def plan_visibility(
    nodes: Iterable[ShownNode], counts: Sequence[Count], owner: str, *, on_masters: bool
) -> list[NodeChange]:
    """Return what to change so that the nodes show `counts`, and no other number of `owner`."""
    listed = sorted(nodes, key=lambda node: node.name)
    ours = [node for node in listed if node.marks.get(MARK_OWNER, owner) == owner]
    candidates = [node for node in ours if on_masters or not node.is_master]
    reached: dict[str, list[Count]] = {}
    designated: dict[str, list[Count]] = {}
    for count in counts:
        reaching = nodes_with(count.label, candidates)
        for node in reaching:
            reached.setdefault(node.name, []).append(count)
        if count.total is not None and (chosen := _designate(reaching, count.label)):
            designated.setdefault(chosen, []).append(count)
    changes = []
    for node in ours:
        near = reached.get(node.name, ())
        if any(count.total is None for count in near):
            continue  # a controller that is silent has as many IPUs as before
        if near:
            changes.append(_show(node, near, designated.get(node.name, ()), owner))
        elif MARK_OWNER in node.marks:
            changes.append(_hide(node))
    return [change for change in changes if change.patches]


def nodes_with(label: str, nodes: Iterable[ShownNode]) -> list[ShownNode]:
    """The nodes that carry a controller's "key=value"."""
    key, _, value = label.partition("=")
    return [node for node in nodes if node.labels.get(key) == value]


def _designate(reaching: Iterable[ShownNode], label: str) -> str:
    """The single node that advertises the IPUs of a controller; "": none can.

    Nodes that accept pods are preferred, then the current node, so that capacity moves only if
    necessary.
    """
    able = [node for node in reaching if not node.has_plugin]
    ranks = {node.name: (not node.is_usable, not node.shows(label), node.name) for node in able}
    return min(ranks, key=ranks.__getitem__, default="")


def _show(
    node: ShownNode, reached: Sequence[Count], own: Sequence[Count], owner: str
) -> NodeChange:
    labels = {
        LABEL_TOTAL: str(sum(count.total or 0 for count in reached)),
        LABEL_FREE: str(sum(count.free or 0 for count in reached)),
    }
    number = str(sum(count.total or 0 for count in own)) if own else None
    names = ",".join(sorted({count.label for count in own})) or None
    marks = {MARK_OWNER: owner, MARK_CAPACITY: names}
    metadata = _changed("labels", labels, node.labels) | _changed("annotations", marks, node.marks)
    return NodeChange(
        node.name,
        {"metadata": metadata} if metadata else {},
        _status(node, number),
        status_first=number is None,
    )


def _hide(node: ShownNode) -> NodeChange:
    labels = _changed("labels", dict.fromkeys((LABEL_TOTAL, LABEL_FREE)), node.labels)
    marks = dict.fromkeys((MARK_OWNER, MARK_CAPACITY))
    metadata = labels | _changed("annotations", marks, node.marks)
    return NodeChange(node.name, {"metadata": metadata}, _status(node, None), status_first=True)


def _status(node: ShownNode, number: str | None) -> dict[str, Any]:
    """Allocatable as well: what kube-scheduler counts with follows capacity late, or never."""
    if number is None and not node.has_ours:
        return {}
    present = {"capacity": node.capacity, "allocatable": node.allocatable}
    wrong = [path for path in _PATHS if present[path] != (number or "")]
    return {"status": {path: {RESOURCE: number} for path in wrong}} if wrong else {}


def _changed(
    field_name: str, wanted: Mapping[str, str | None], present: Mapping[str, str]
) -> dict[str, dict[str, str | None]]:
    """The part of a merge patch that turns `present` into the wanted values; None removes a key."""
    changed = {key: value for key, value in wanted.items() if present.get(key) != value}
    return {field_name: changed} if changed else {}
