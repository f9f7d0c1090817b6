"""io: shared parts of the stand-in nodes: client, clock and cached objects.

Also deletes the object of a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devcluster.kubelet.behaviour import attempt_of
from ipuhub.kube.errors import Conflict, NotFound
from ipuhub.kube.events import EventRecorder
from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
)
from ipuhub.times import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from devcluster.kubelet.options import StandInOptions
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

BY_NODE: Final = "node"
BY_ATTEMPT: Final = "attempt"
BY_NAMESPACE: Final = "namespace"


class World:
    """One client and one copy of each kind of object; `now` gives aware UTC times.

    Claims and volumes are followed only where the options need them.
    """

    def __init__(
        self, client: KubeClient, options: StandInOptions, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.client = client
        self.options = options
        self.now = now
        self.pods = Informer(
            client,
            PODS,
            field_selector="" if options.scheduler else "spec.nodeName!=",
            indexers={BY_NODE: _by_node, BY_ATTEMPT: _by_attempt},
        )
        self.nodes = Informer(client, NODES, transform=_whole)
        self.claims = Informer(
            client,
            PERSISTENT_VOLUME_CLAIMS,
            indexers={BY_NAMESPACE: _by_namespace},
            transform=_whole,
        )
        self.volumes = Informer(client, PERSISTENT_VOLUMES, transform=_whole)

    def informers(self) -> list[Informer]:
        """Return the copies to keep up to date."""
        options = self.options
        wanted = [
            (self.pods, True),
            (self.nodes, True),
            (self.claims, options.scheduler or options.claims),
            (self.volumes, options.claims),
        ]
        return [informer for informer, needed in wanted if needed]

    def recorder(self, component: str) -> EventRecorder:
        """A writer of Events in the name of `component`."""
        return EventRecorder(self.client, component, self.now)


def _whole(manifest: Manifest) -> Manifest:
    """Return the object with a spec and a status, which every real node has; an object may be
    stored without them."""
    return {"spec": {}, "status": {}} | manifest


def _by_node(pod: Manifest) -> list[str]:
    return [pod["spec"].get("nodeName") or ""]


def _by_attempt(pod: Manifest) -> list[str]:
    attempt = attempt_of(pod)
    return [attempt] if attempt else []


def _by_namespace(manifest: Manifest) -> list[str]:
    return [manifest["metadata"]["namespace"]]


async def delete_pod(
    client: KubeClient, pod: Manifest, *, grace_seconds: int | None = None
) -> None:
    """Delete this pod and no successor of its name; None: with the grace that it asks for."""
    metadata = pod["metadata"]
    try:
        await client.delete(
            PODS,
            metadata["name"],
            metadata["namespace"],
            uid=metadata["uid"],
            grace_period_seconds=grace_seconds,
        )
    except (NotFound, Conflict):
        return  # gone; the name may be another pod's by now
