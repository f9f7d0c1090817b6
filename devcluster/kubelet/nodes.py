"""domain: the API objects of a stand-in node: Node, status and lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipuhub.times import format_micro_time, format_time

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from datetime import datetime

    from devcluster.kubelet.options import StandInOptions

LEASE_NAMESPACE: Final = "kube-node-lease"
CERTIFICATE: Final = "ipuhub.io/kubelet-certificate"
LOOPBACK: Final = "127.0.0.1"
_LEASE_SECONDS: Final = 40
_POD_ADDRESSES: Final = 1024  # a node
_CONDITIONS: Final = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "stand-in kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class StandInNode:
    """One node: its number gives its addresses."""

    number: int
    name: str

    @property
    def ip(self) -> str:
        """The node's address."""
        return f"10.64.{self.number // 250}.{self.number % 250 + 1}"

    def choose_pod_ip(self, taken: Container[str]) -> str:
        """The first pod address of the node that is not taken; the last address if all are."""
        address = ""
        for offset in range(1, _POD_ADDRESSES):
            value = self.number * _POD_ADDRESSES + offset
            address = f"10.{128 + (value >> 16)}.{value >> 8 & 255}.{value & 255}"
            if address not in taken:
                break
        return address


def stand_in_nodes(options: StandInOptions) -> dict[str, StandInNode]:
    """Return the nodes by name."""
    return {name: StandInNode(number, name) for number, name in enumerate(options.node_names())}


def build_node(node: StandInNode, options: StandInOptions) -> dict[str, Any]:
    """The Node object without its status."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "ipuhub.io/stand-in": "true",
    }
    own = {key: text.replace("{i}", str(node.number)) for key, text in options.labels.items()}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels | own},
        "spec": {},
    }
    if options.kubelet_certificate:
        body["metadata"]["annotations"] = {CERTIFICATE: options.kubelet_certificate}
    return body


def build_status(
    node: StandInNode, options: StandInOptions, found: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Strategic merge patch of the status, which keeps the times of unchanged conditions."""
    capacity = {
        "cpu": options.cpu,
        "memory": options.memory,
        "pods": str(options.pods),
        "ephemeral-storage": "1Ti",
    }
    address = LOOPBACK if options.kubelet_port else node.ip
    addresses = [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": node.name},
    ]
    return {
        "status": {
            "conditions": build_conditions(found, now),
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": addresses,
            "nodeInfo": _node_info(node),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": options.kubelet_port}},
        }
    }


def build_conditions(found: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Return the conditions that the node reports."""
    old = {
        condition["type"]: condition
        for condition in (found.get("status") or {}).get("conditions") or ()
    }
    conditions = []
    for name, status, reason, text in _CONDITIONS:
        same = old.get(name, {}).get("status") == status
        since = old[name].get("lastTransitionTime") if same else None
        conditions.append(
            {
                "type": name,
                "status": status,
                "reason": reason,
                "message": text,
                "lastHeartbeatTime": format_time(now),
                "lastTransitionTime": since or format_time(now),
            }
        )
    return conditions


def has_reported(found: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the object shows the conditions that the node would report now."""
    old = {
        condition["type"]: condition
        for condition in (found.get("status") or {}).get("conditions") or ()
    }
    return all(
        old.get(condition["type"], {}).get("status") == condition["status"]
        for condition in build_conditions(found, now)
    )


def build_lease(node: StandInNode, node_uid: str, now: datetime) -> dict[str, Any]:
    """The lease by which the node shows that it is alive."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [owner],
        },
        "spec": {
            "holderIdentity": node.name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def _node_info(node: StandInNode) -> dict[str, str]:
    return {
        **dict.fromkeys(("machineID", "systemUUID", "bootID"), node.name),
        "kernelVersion": "6.1.0-sim",
        "osImage": "IPUHub stand-in",
        "containerRuntimeVersion": "sim://1",
        "kubeletVersion": "v1.31.0-ipuhub",
        "kubeProxyVersion": "v1.31.0-ipuhub",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
