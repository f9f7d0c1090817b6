"""domain: which node a pod goes to, or why to none, in kube-scheduler's words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.affinity import matches_node, tolerates, untolerated_taint
from devcluster.kubelet.capacity import PODS, node_capacity, pod_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devcluster.kubelet.capacity import Ledger

_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
UNBOUND_CLAIMS: Final = "pod has unbound immediate PersistentVolumeClaims"
NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen node, or an empty name and the sentence that says why there is none."""

    node: str
    message: str = ""


def needs_node(pod: Mapping[str, Any], scheduler_name: str) -> bool:
    """Whether the scheduler of that name is to find a node for the pod."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName") == scheduler_name
        and (pod.get("status") or {}).get("phase") in {None, "Pending"}
    )


def choose_node(
    pod: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    ledger: Ledger,
    claim_problem: str = "",
) -> Placement:
    """Choose the node with the fewest pods among those that fit; then by name.

    `claim_problem` is what `judge_claims` says about the pod's volume claims.
    """
    if not nodes:
        return Placement("", NO_NODES)
    if claim_problem:
        return Placement("", unschedulable_message(len(nodes), {claim_problem: len(nodes)}))
    request = pod_request(pod)
    problems: Counter[str] = Counter()
    fitting: list[tuple[int, str]] = []
    for node in nodes:
        name = node["metadata"]["name"]
        used = ledger.used(name)
        found = _problems(pod, node, request, used)
        problems.update(found)
        if not found:
            fitting.append((used[PODS], name))
    if fitting:
        return Placement(min(fitting)[1])
    return Placement("", unschedulable_message(len(nodes), problems))


def unschedulable_message(nodes: int, problems: Mapping[str, int]) -> str:
    """`0/4 nodes are available: 3 Insufficient cpu, 1 node(s) were unschedulable.`"""
    texts = sorted(f"{count} {problem}" for problem, count in problems.items())
    return f"0/{nodes} nodes are available: {', '.join(texts)}."


def judge_claims(pod: Mapping[str, Any], claims: Mapping[str, Mapping[str, Any]]) -> str:
    """What is wrong with the volume claims that the pod mounts; `claims` by name. Or nothing."""
    for name in claim_names(pod):
        claim = claims.get(name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if (claim.get("status") or {}).get("phase") != "Bound":
            return UNBOUND_CLAIMS
    return ""


def claim_names(pod: Mapping[str, Any]) -> list[str]:
    """Names of the volume claims that the pod mounts."""
    volumes: Iterable[Mapping[str, Any]] = pod["spec"].get("volumes") or ()
    sources = (volume.get("persistentVolumeClaim") for volume in volumes)
    return [source["claimName"] for source in sources if source]


def _problems(
    pod: Mapping[str, Any],
    node: Mapping[str, Any],
    request: Counter[str],
    used: Counter[str],
) -> list[str]:
    """Why the pod cannot go to the node: the first rule that fails, all short resources."""
    if (node.get("spec") or {}).get("unschedulable") and not any(
        tolerates(one, _CORDONED) for one in pod["spec"].get("tolerations") or ()
    ):
        return ["node(s) were unschedulable"]
    if not matches_node(pod, node):
        return ["node(s) didn't match node selector"]
    taint = untolerated_taint(pod, node, _HARD)
    if taint is not None:
        pair = f"{{{taint['key']}: {taint.get('value') or ''}}}"
        return [f"node(s) had taint {pair}, that the pod didn't tolerate"]
    capacity = node_capacity(node)
    short = [name for name, amount in request.items() if used[name] + amount > capacity[name]]
    return ["Too many pods" if name == PODS else f"Insufficient {name}" for name in short]
