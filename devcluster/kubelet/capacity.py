"""domain: what pods ask of a node, and what is left on each node."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.conditions import TERMINAL
from devcluster.kubelet.quantities import parse_thousandths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PODS: Final = "pods"
_ONE: Final = 1000  # amounts are thousandths


def pod_request(pod: Mapping[str, Any]) -> Counter[str]:
    """Return a pod's requests in thousandths, itself as one of `pods` included.

    The larger of all containers together and the largest init container, and the overhead.
    """
    spec = pod["spec"]
    total: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        total.update(_requests(container))
    for container in spec.get("initContainers") or ():
        total |= _requests(container)
    total.update(_amounts(spec.get("overhead") or {}))
    total[PODS] = _ONE
    return total


def node_capacity(node: Mapping[str, Any]) -> Counter[str]:
    """Return what a node offers to pods, in thousandths."""
    status = node.get("status") or {}
    return _amounts(status.get("allocatable") or status.get("capacity") or {})


def _requests(container: Mapping[str, Any]) -> Counter[str]:
    return _amounts((container.get("resources") or {}).get("requests") or {})


def _amounts(quantities: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: parse_thousandths(str(amount)) for name, amount in quantities.items()})


@dataclass(slots=True)
class Ledger:
    """What is in use on each node, kept up to date pod by pod."""

    _pods: dict[str, tuple[str, Counter[str]]] = field(default_factory=dict)
    _used: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Iterable[Mapping[str, Any]]) -> Ledger:
        """The ledger of these pods."""
        ledger = cls()
        for pod in pods:
            ledger.observe(pod)
        return ledger

    def observe(self, pod: Mapping[str, Any]) -> None:
        """Count the pod on its node while it has one and has not ended."""
        node = pod["spec"].get("nodeName")
        ended = (pod.get("status") or {}).get("phase") in TERMINAL
        if ended:
            self.forget(pod["metadata"]["uid"])
        elif node:
            self.assume(pod, node)

    def assume(self, pod: Mapping[str, Any], node: str) -> None:
        """Count the pod on `node`: it is bound, or about to be."""
        uid = pod["metadata"]["uid"]
        if self._pods.get(uid, ("",))[0] == node:
            return
        self.forget(uid)
        request = pod_request(pod)
        self._pods[uid] = node, request
        self._used.setdefault(node, Counter()).update(request)

    def has(self, uid: str) -> bool:
        """Whether the pod with this UID is counted somewhere."""
        return uid in self._pods

    def forget(self, uid: str) -> None:
        """The pod is gone, or has ended."""
        node, request = self._pods.pop(uid, ("", Counter()))
        if node:
            self._used[node].subtract(request)

    def used(self, node: str) -> Counter[str]:
        """Return what is in use on `node`, in thousandths."""
        return self._used.get(node, Counter())
