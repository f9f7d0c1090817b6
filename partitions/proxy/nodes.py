"""io: the nodes of the cluster as the proxy needs them: labels, addresses, and who shows IPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import NODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

_LABEL_INDEX: Final = "label"
_KEPT: Final = ("name", "uid", "resourceVersion", "labels")


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its labels, and the names and addresses under which others reach it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: frozenset[str] = frozenset()


class NodeLabels:
    """Which "key=value" labels which nodes carry, as of a moment ago."""

    def __init__(self, client: KubeClient) -> None:
        self.informer = Informer(
            client, NODES, indexers={_LABEL_INDEX: _labels}, transform=_what_is_read
        )

    def has(self, label: str) -> bool:
        """Whether some node carries it; taken for granted until the nodes have been listed."""
        return not self.informer.synced or bool(self.informer.by_index(_LABEL_INDEX, label))

    def find(self, name: str) -> Node | None:
        """Return a node by its name; None: not known, or not yet."""
        found = self.informer.get("", name)
        return None if found is None else node_of(found)

    @property
    def problem(self) -> str:
        """Why the nodes are not known; nothing: they are."""
        return "" if self.informer.synced else self.informer.problem or "not listed yet"


def node_of(manifest: Manifest) -> Node:
    """Return what is read of a node that the API server, or kube-scheduler, shows."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    addresses = (one.get("address") for one in status.get("addresses") or ())
    return Node(
        metadata["name"],
        metadata.get("labels") or {},
        frozenset(address for address in addresses if address),
    )


def _labels(node: Manifest) -> Iterator[str]:
    labels = node["metadata"].get("labels") or {}
    return (f"{key}={value}" for key, value in labels.items())


def _what_is_read(node: Manifest) -> Manifest:
    """Nodes are large, and little of them is read."""
    metadata, status = node["metadata"], node.get("status") or {}
    kept = {key: metadata[key] for key in _KEPT if key in metadata}
    return {**node, "metadata": kept, "status": {"addresses": status.get("addresses") or []}}
