"""domain: the nodes near the IPUs of a job, as answers of a kube-scheduler extender.

kube-scheduler posts `ExtenderArgs` of kube-scheduler/extender/v1; `filter` answers with an
`ExtenderFilterResult`, `prioritize` with a `HostPriorityList`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from partitions.errors import InvalidQuestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LABEL_JOB_UID: Final = "graphcore.ai/ipujob-uid"
LABEL_INSTANCE: Final = "graphcore.ai/instance"
# kube-scheduler takes 0 to 10 and multiplies by the extender's weight.
SCORE_OF_HOST: Final = 10
SCORE_OF_LABEL: Final = 5
_MOST_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node of the question. No labels: only its name is known."""

    name: str
    labels: Mapping[str, str] | None = None
    addresses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Question:
    """A request of kube-scheduler: a pod and its candidate nodes.

    `nodes`: complete nodes were sent, and are returned complete, because the scheduler does not use
    its cache for us.
    """

    labels: Mapping[str, str]
    selector: Mapping[str, str]
    candidates: tuple[Candidate, ...]
    nodes: tuple[Mapping[str, Any], ...] | None = None

    @property
    def holder(self) -> tuple[str, int] | None:
        """Return the job UID and instance of the pod; None: it is no job's pod."""
        uid, instance = self.labels.get(LABEL_JOB_UID), self.labels.get(LABEL_INSTANCE, "0")
        is_number = instance.isascii() and instance.isdecimal() and len(instance) <= _MOST_DIGITS
        return (uid, int(instance)) if uid and is_number else None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a job's IPUs: their V-IPU controller, and the label of the nodes that reach
    it."""

    controller: str
    key: str
    value: str

    @property
    def host(self) -> str:
        """The controller's host, without its port and brackets."""
        return self.controller.rpartition(":")[0].strip("[]")

    def wanted_by(self, question: Question) -> str:
        """The label's value for a pod: a selector of its own wins, as in the operator."""
        return question.selector.get(self.key, self.value)


def read_question(found: Mapping[str, Any]) -> Question:
    """Decode `ExtenderArgs`; raises InvalidQuestion with the reason."""
    pod = _object(found.get("Pod"), "Pod")
    metadata = _object(pod.get("metadata"), "Pod.metadata")
    spec = _object(pod.get("spec") or {}, "Pod.spec")
    labels = _texts(metadata.get("labels"), "Pod.metadata.labels")
    selector = _texts(spec.get("nodeSelector"), "Pod.spec.nodeSelector")
    names, nodes = found.get("NodeNames"), found.get("Nodes")
    if (names is None) == (nodes is None):
        raise InvalidQuestion("exactly one of Nodes and NodeNames must be set")
    if nodes is None:
        return Question(labels, selector, _names(names))
    items = _list(_object(nodes, "Nodes").get("items") or [], "Nodes.items")
    objects = tuple(_object(item, "Nodes.items") for item in items)
    return Question(labels, selector, tuple(_candidate(node) for node in objects), objects)


def filter_nodes(question: Question, place: Place | None) -> dict[str, Any]:
    """Return the `ExtenderFilterResult`; without a `place` every node passes."""
    fits = _fits(question, place)
    passed = [fits(candidate) for candidate in question.candidates]
    refused = [c.name for c, ok in zip(question.candidates, passed, strict=True) if not ok]
    text = ""
    if place is not None:
        label = f"{place.key}={place.wanted_by(question)}"
        text = f"node(s) without the label {label} of the V-IPU controller that holds the partition"
    answer: dict[str, Any] = {
        "FailedNodes": {},
        # Evicting pods gives no node this label.
        "FailedAndUnresolvableNodes": dict.fromkeys(refused, text),
        "Error": "",
    }
    if question.nodes is None:
        names = [c.name for c, ok in zip(question.candidates, passed, strict=True) if ok]
        return answer | {"Nodes": None, "NodeNames": names}
    items = [node for node, ok in zip(question.nodes, passed, strict=True) if ok]
    return answer | {"Nodes": {"metadata": {}, "items": items}, "NodeNames": None}


def rank_nodes(question: Question, place: Place | None) -> list[dict[str, Any]]:
    """Return the `HostPriorityList`: best the controller's own host, then nodes with its label."""
    return [{"Host": c.name, "Score": _score(question, place, c)} for c in question.candidates]


def _fits(question: Question, place: Place | None) -> Callable[[Candidate], bool]:
    if place is None:
        return lambda _: True
    wanted = place.wanted_by(question)
    # A node that is not known yet may have the label: the pod's own selector judges it.
    return lambda candidate: candidate.labels is None or candidate.labels.get(place.key) == wanted


def _score(question: Question, place: Place | None, candidate: Candidate) -> int:
    if place is None or (candidate.labels or {}).get(place.key) != place.wanted_by(question):
        return 0
    is_host = place.host in candidate.addresses | {candidate.name}
    return SCORE_OF_HOST if is_host else SCORE_OF_LABEL


def _candidate(node: Mapping[str, Any]) -> Candidate:
    metadata = _object(node.get("metadata"), "Nodes.items.metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidQuestion("Nodes.items.metadata.name must be a node's name")
    labels = _texts(metadata.get("labels"), "Nodes.items.metadata.labels")
    status = _object(node.get("status") or {}, "Nodes.items.status")
    listed = _list(status.get("addresses") or [], "Nodes.items.status.addresses")
    addresses = (_object(item, "Nodes.items.status.addresses").get("address") for item in listed)
    return Candidate(name, labels, frozenset(a for a in addresses if isinstance(a, str) and a))


def _names(found: object) -> tuple[Candidate, ...]:
    names = _list(found, "NodeNames")
    if not all(isinstance(name, str) for name in names):
        raise InvalidQuestion("NodeNames must be a list of names")
    return tuple(Candidate(name) for name in names)


def _object(found: object, field: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise InvalidQuestion(f"{field} must be an object")
    return found


def _list(found: object, field: str) -> Sequence[Any]:
    if not isinstance(found, list):
        raise InvalidQuestion(f"{field} must be a list")
    return found


def _texts(found: object, field: str) -> Mapping[str, str]:
    texts = _object({} if found is None else found, field)
    if not all(isinstance(value, str) for value in texts.values()):
        raise InvalidQuestion(f"{field} must be a map of texts")
    return texts
