"""domain: pods that were asked to end and do not, since nobody on their node hears it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from jobs.operator.instances import Instance
    from jobs.operator.pods import PodView

PATIENCE = timedelta(seconds=60)  # past the pod's own grace period


def causes(instances: Iterable[Instance], now: datetime) -> Iterator[tuple[str, str]]:
    """What a job waits for: its partition is never reset under a pod that may still run."""
    for pod in _ending(instances):
        if pod.gone_by is not None and now - pod.gone_by >= PATIENCE:
            yield Reason.PODS_STUCK, _sentence(pod)


def seconds_left(instances: Iterable[Instance], now: datetime) -> float | None:
    """Seconds until a pod that is ending counts as stuck; None: none is ending."""
    waits = [
        (pod.gone_by + PATIENCE - now).total_seconds()
        for pod in _ending(instances)
        if pod.gone_by is not None and now - pod.gone_by < PATIENCE
    ]
    return min(waits) if waits else None


def _ending(instances: Iterable[Instance]) -> Iterator[PodView]:
    for instance in instances:
        for pod in (*instance.strays, *instance.pods):
            if pod.is_deleting and not pod.is_terminal:
                yield pod


def _sentence(pod: PodView) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    return (
        f"Waiting for pod {pod.name}{where} to end, which it should have long done: if the node is "
        "lost, delete the node, or force-delete the pod once nothing of it runs any more"
    )
