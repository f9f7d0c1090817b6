"""The connections that the chart's NetworkPolicies allow, by the documented rules of Kubernetes.

A pod that a policy selects in a direction is closed in that direction except for the policies'
rules. A connection needs to be allowed at its source and at its destination. Forms that the chart
does not use are rejected, so that none is evaluated wrongly without notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# No pod has these addresses: an API server, databases, mail, whatever is on the internet.
OUTSIDE = {"dns": 53, "api": 6443, "web": 443, "postgresql": 5432, "v-ipu": 8090, "other": 9999}
OTHER_PORT = 9999
_OF_USAGE = ("prober", "monitor", "worker", "beat")
# What components were seen to connect to while jobs ran and were counted (/proc/net/nf_conntrack
# of the nodes); scheduler, `helm test` and agents have tests of their own. Closing one stops
# something.
NEEDED = {
    ("controller-manager", "vipu-proxy", 8090),
    ("prober", "vipu-proxy", 8090),
    ("web", "vipu-proxy", 8090),
    ("vipu-proxy", "vipu-server", 8090),
    ("vipu-server", "vipu-agent", 8080),
    ("scheduler", "vipu-proxy", 8080),
    ("test", "vipu-proxy", 8080),
    ("test", "web", 8000),
    *(("test", each, 8081) for each in ("controller-manager", "webhook", *_OF_USAGE)),
    *((each, "database", 5432) for each in ("web", *_OF_USAGE)),
}


@dataclass(frozen=True)
class Peer:
    """One end of a connection: a pod, or with namespace "" an address that is no pod's."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


def may_connect(
    policies: Sequence[dict[str, Any]], source: Peer, to: Peer, port: int, protocol: str = "TCP"
) -> bool:
    """Return whether `source` may open a connection to this port of `to`."""
    out = _lets(policies, "Egress", source, to, (protocol, port))
    return out and _lets(policies, "Ingress", to, source, (protocol, port))


def _lets(
    policies: Sequence[dict[str, Any]],
    direction: str,
    pod: Peer,
    other: Peer,
    port: tuple[str, int],
) -> bool:
    """Return whether the policies of `pod` let `other` through in this direction."""
    mine = [each for each in policies if _selects(each, pod) and direction in _directions(each)]
    if not mine:
        return True
    rules = [rule for each in mine for rule in each["spec"].get(direction.lower(), ())]
    return any(_fits(rule, direction, pod.namespace, other, port) for rule in rules)


def _selects(policy: dict[str, Any], pod: Peer) -> bool:
    # No policy is about what is not a pod, nor about pods of another namespace.
    here = pod.namespace == policy["metadata"]["namespace"]
    return here and _matches(policy["spec"]["podSelector"], pod.labels)


def _directions(policy: dict[str, Any]) -> Sequence[str]:
    spec = policy["spec"]
    default = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return list(spec.get("policyTypes") or default)


def _fits(
    rule: dict[str, Any], direction: str, namespace: str, other: Peer, port: tuple[str, int]
) -> bool:
    peers = rule.get("from" if direction == "Ingress" else "to")
    assert set(rule) <= {"ports", "from" if direction == "Ingress" else "to"}, rule
    # No list, or an empty list: all ports, everybody.
    is_port = not rule.get("ports") or any(_is_port(each, port) for each in rule["ports"])
    return is_port and (not peers or any(_is_peer(each, namespace, other) for each in peers))


def _is_port(given: dict[str, Any], port: tuple[str, int]) -> bool:
    protocol, number = port
    assert set(given) <= {"protocol", "port"}, given
    assert isinstance(given["port"], int), "a port by its name depends on the pod"
    return bool(given.get("protocol", "TCP") == protocol and given["port"] == number)


def _is_peer(given: dict[str, Any], namespace: str, other: Peer) -> bool:
    # Without a namespaceSelector: the policy's own namespace.
    assert set(given) == {"podSelector"}, given
    return other.namespace == namespace and _matches(given["podSelector"], other.labels)


def _matches(selector: dict[str, Any], labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, selector
    return bool(selector.get("matchLabels", {}).items() <= labels.items())
