"""io: the label of this pod by which a Service finds the process that leads.

With several replicas each is ready, and the Service selects the one with the label. It is written
through the subresource `status` of the pod: the right to that cannot change what a pod runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)
LEADER_LABEL: Final = "ipuhub.io/leader"
_LOOK_SECONDS: Final = 0.2
_AGAIN_SECONDS: Final = 2.0


class LeaderLabel:
    """Keeps the label of one pod as `is_leading` says; `problem` is why it cannot, or empty."""

    def __init__(
        self, client: KubeClient, namespace: str, pod: str, is_leading: Callable[[], bool]
    ) -> None:
        self._client, self._namespace, self._pod = client, namespace, pod
        self._is_leading = is_leading
        self.problem = ""

    async def run(self) -> None:
        """Write the label at the start, and whenever this replica begins or ceases to lead."""
        written: bool | None = None  # a container that restarts has the label of its last run
        while True:
            wanted = self._is_leading()
            if wanted == written:
                await asyncio.sleep(_LOOK_SECONDS)
            elif await self._write(leads=wanted):
                written = wanted
            else:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _write(self, *, leads: bool) -> bool:
        patch = {"metadata": {"labels": {LEADER_LABEL: "true" if leads else None}}}
        try:
            await self._client.patch(PODS, self._pod, patch, self._namespace, subresource="status")
        except ApiError as error:
            self.problem = f"{LEADER_LABEL} of pod {self._namespace}/{self._pod}: {error}"
            log.warning("the Service cannot find the leading proxy", problem=self.problem)
            return False
        self.problem = ""
        return True
