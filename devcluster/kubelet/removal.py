"""io: takes a pod's object away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.kube.errors import Conflict, NotFound
from ipuhub.kube.resources import PODS

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.types import Manifest


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
