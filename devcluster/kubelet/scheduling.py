"""domain: selects a node for a pod, or explains in kube-scheduler's words why none fits.

Checks selector, required affinity and tolerations of the pod, and the free resources of each node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.containers import TERMINAL
from devcluster.schemas.validation import stored_thousandths
from devcluster.storage.selectors import selector_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def matches_node(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Return whether nodeSelector and required node affinity of the pod select the node."""
    spec = pod["spec"]
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_term(term, labels, fields) for term in required.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    on_fields = term.get("matchFields") or ()
    if not expressions and not on_fields:
        return False  # an empty term selects nothing
    return selector_of({"matchExpressions": expressions}).matches(labels) and selector_of(
        {"matchExpressions": on_fields}
    ).matches(fields)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether one toleration matches one taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration.get("key")) and same


def untolerated_taint(
    pod: Mapping[str, Any], node: Mapping[str, Any], effects: frozenset[str]
) -> Mapping[str, Any] | None:
    """Return the first taint of these effects that the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or ()
    taints = taints_of(node)
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


def taints_of(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The taints of a node, which may have been made without a spec."""
    return (node.get("spec") or {}).get("taints") or []


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
    return Counter({name: stored_thousandths(amount) for name, amount in quantities.items()})


@dataclass(slots=True)
class Ledger:
    """The resources in use on each node, kept up to date pod by pod."""

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
        """Count the pod on its node while it has a node and has not ended."""
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
        """Return whether the pod with this UID is counted somewhere."""
        return uid in self._pods

    def forget(self, uid: str) -> None:
        """The pod is gone, or has ended."""
        node, request = self._pods.pop(uid, ("", Counter()))
        if node:
            self._used[node].subtract(request)

    def used(self, node: str) -> Counter[str]:
        """Return what is in use on `node`, in thousandths."""
        return self._used.get(node, Counter())


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
    """Return whether the scheduler of that name is to find a node for the pod."""
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
    """Return the problem of the volume claims that the pod mounts, or nothing; `claims` by name."""
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
    """Return why the pod cannot go to the node: the first rule that fails, all short resources."""
    if (node.get("spec") or {}).get("unschedulable") and not any(
        tolerates(toleration, _CORDONED) for toleration in pod["spec"].get("tolerations") or ()
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
