"""domain: pods on a node that has stopped reporting, until Kubernetes takes them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jobs.operator.instances import Instance
    from jobs.operator.pods import PodView

MOST_NAMED = 3


def causes(instances: Iterable[Instance]) -> Iterator[tuple[str, str]]:
    """What may stand still, told at once: the pods are taken away minutes later."""
    pods = [pod for instance in instances for pod in _unheard(instance)]
    if not pods:
        return
    nodes = sorted({pod.node for pod in pods})
    names = sorted(pod.name for pod in pods)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    said = (
        f"Node{'s' if len(nodes) > 1 else ''} {', '.join(nodes[:MOST_NAMED])} stopped reporting, "
        f"with {', '.join(names[:MOST_NAMED])}{more}: unless that changes, Kubernetes takes the "
        "pods away after some minutes (five by default), which ends the attempt"
    )
    yield Reason.NODE_NOT_READY, said


def _unheard(instance: Instance) -> Iterator[PodView]:
    if not instance.is_settled:
        yield from (pod for pod in instance.pods if pod.is_unheard and not pod.is_deleting)
