"""io: the group of each namespace: its label `ipuhub.io/group`, else the namespace itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.types import Manifest

LABEL: Final = "ipuhub.io/group"


class NamespaceGroups:
    """Follows the namespaces. One that is not known yet, or is gone, is its own group."""

    def __init__(self, client: KubeClient) -> None:
        self._informer = Informer(client, NAMESPACES, transform=_only_labels)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._informer.run()

    async def wait_known(self, timeout_seconds: float) -> bool:
        """Wait until all namespaces are known; whether they are."""
        try:
            await self._informer.wait_synced(timeout_seconds)
        except TimeoutError:
            return False
        return True

    def group_of(self, namespace: str) -> str:
        """The group that a namespace counts for."""
        found = self._informer.get("", namespace) or {}
        labels = (found.get("metadata") or {}).get("labels") or {}
        return str(labels.get(LABEL) or namespace)


def _only_labels(manifest: Manifest) -> Manifest:
    return {"metadata": manifest.get("metadata") or {}}
