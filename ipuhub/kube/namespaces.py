"""io: follows the namespaces that a label selector chooses, and the group of each namespace.

The group is the label `ipuhub.io/group`, or else the namespace itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest
    from ipuhub.kube.watch import Pace


class ChosenNamespaces:
    """The namespaces that `selector` chooses now, and those not yet reported.

    The choice stays known while the API server is unavailable; `problem` says why it is not
    current.
    """

    def __init__(self, client: KubeClient, selector: str, pace: Pace | None = None) -> None:
        self.selector = selector
        self._informer = Informer(
            client, NAMESPACES, label_selector=selector, transform=_only_name, pace=pace
        )
        self._untold: set[str] = set()
        self._news = asyncio.Event()
        self._informer.add_handler(self._note)

    @property
    def problem(self) -> str:
        """Return why the choice is not current, in one sentence; empty: it is."""
        problem = self._informer.problem
        return problem and f"the namespaces with {self.selector} are not known: {problem}"

    def covers(self, namespace: str) -> bool:
        return self._informer.get("", namespace) is not None

    async def run(self) -> None:
        await self._informer.run()

    async def wait_known(self, timeout_seconds: float | None = None) -> None:
        """Wait for the first list. Raises TimeoutError, with the reason."""
        await self._informer.wait_synced(timeout_seconds)

    def restart_arrivals(self) -> None:
        """Let `arrivals` begin with all that are chosen."""
        self._untold = {manifest["metadata"]["name"] for manifest in self._informer.all()}
        self._news.set()

    async def arrivals(self) -> list[str]:
        """Wait for new namespaces; each is returned once, until `report_failed`."""
        await self._news.wait()
        self._news.clear()
        names, self._untold = sorted(self._untold), set()
        return [name for name in names if self.covers(name)]

    def report_failed(self, names: list[str]) -> None:
        """Report these namespaces again."""
        self._untold |= {*names}
        self._news.set()

    def _note(self, old: Manifest | None, new: Manifest | None) -> None:
        if old is None and new is not None:
            self._untold.add(new["metadata"]["name"])
            self._news.set()


def _only_name(manifest: Manifest) -> Manifest:
    return {"metadata": manifest["metadata"]}


LABEL: Final = "ipuhub.io/group"


class NamespaceGroups:
    """Follows the groups of namespaces. An unknown or deleted namespace is its own group."""

    def __init__(self, client: KubeClient) -> None:
        self._informer = Informer(client, NAMESPACES, transform=_only_labels)

    async def run(self) -> None:
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
