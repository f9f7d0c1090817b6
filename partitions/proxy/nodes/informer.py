"""io: the cluster's nodes as the proxy uses them: labels, addresses, and advertised IPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import NODES
from partitions.proxy.nodes.visibility import MARK_CAPACITY, MARK_OWNER, RESOURCE, ShownNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

_LABEL_INDEX: Final = "label"
_AMOUNTS: Final = ("capacity", "allocatable")
_KEPT: Final = ("name", "uid", "resourceVersion", "labels")


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its labels, names and addresses."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: frozenset[str] = frozenset()


class NodeLabels:
    """The cached "key=value" labels of nodes."""

    def __init__(self, client: KubeClient) -> None:
        self.informer = Informer(
            client, NODES, indexers={_LABEL_INDEX: _labels}, transform=trimmed_node
        )

    def has(self, label: str) -> bool:
        """Return whether some node carries it; taken for granted until the nodes have been
        listed."""
        return not self.informer.synced or bool(self.informer.by_index(_LABEL_INDEX, label))

    def find(self, name: str) -> Node | None:
        """Return a node by its name; None: not known, or not yet."""
        found = self.informer.get("", name)
        return None if found is None else node_of(found)

    def advertised(self) -> list[ShownNode]:
        """Return the IPUs that all nodes advertise."""
        return [shown_node(node) for node in self.informer.all()]

    @property
    def problem(self) -> str:
        """Return why the nodes are unknown; empty: they are known."""
        return "" if self.informer.synced else self.informer.problem or "not listed yet"


def node_of(manifest: Manifest) -> Node:
    """Return the used fields of a node, from the API server or from kube-scheduler."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    addresses = (address.get("address") for address in status.get("addresses") or ())
    return Node(
        metadata["name"],
        metadata.get("labels") or {},
        frozenset(address for address in addresses if address),
    )


def shown_node(manifest: Manifest) -> ShownNode:
    """Return the IPUs that a node shows."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    is_ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )
    capacity, allocatable = ((status.get(path) or {}).get(RESOURCE, "") for path in _AMOUNTS)
    return ShownNode(
        metadata["name"],
        metadata.get("labels") or {},
        _marks(metadata),
        capacity,
        allocatable,
        is_usable=is_ready and not (manifest.get("spec") or {}).get("unschedulable"),
    )


def _labels(node: Manifest) -> Iterator[str]:
    labels = node["metadata"].get("labels") or {}
    return (f"{key}={value}" for key, value in labels.items())


def _marks(metadata: Mapping[str, Any]) -> dict[str, str]:
    annotations = metadata.get("annotations") or {}
    return {key: annotations[key] for key in (MARK_OWNER, MARK_CAPACITY) if key in annotations}


def trimmed_node(node: Manifest) -> Manifest:
    """Return the part of a node that is read: nodes are large."""
    metadata, status = node["metadata"], node.get("status") or {}
    trimmed = {key: metadata[key] for key in _KEPT if key in metadata}
    conditions = status.get("conditions") or ()
    amounts_kept: dict[str, Any] = {
        "addresses": status.get("addresses") or [],
        "conditions": [condition for condition in conditions if condition.get("type") == "Ready"],
    }
    for path in _AMOUNTS:
        amounts = status.get(path) or {}
        amounts_kept[path] = {key: amounts[key] for key in amounts if key == RESOURCE}
    return {
        **node,
        "metadata": {**trimmed, "annotations": _marks(metadata)},
        "status": amounts_kept,
    }
