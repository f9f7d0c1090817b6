"""io: the pod label by which a Service selects the leader.

With several replicas each is ready, and the Service selects the pod with the label. It is written
through the subresource `status` of the pod: the right to that cannot change what a pod runs.

If the node of a leader dies, the pod keeps its label, and its endpoint until Kubernetes marks the
node NotReady: for half a minute the Service would send every other request there. So the new leader
removes the label from the old leader's pod.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.kube.errors import ApiError, NotFound
from ipuhub.kube.resources import PODS

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.process.leadership import Leadership

log = structlog.get_logger(__name__)
LEADER_LABEL: Final = "ipuhub.io/leader"
_LOOK_SECONDS: Final = 0.2
_AGAIN_SECONDS: Final = 2.0
_SUFFIX: Final = "_"


def identity_of(pod: str, suffix: str) -> str:
    """Return a name in the Lease from which a successor reads the pod."""
    return f"{pod}{_SUFFIX}{suffix}"


def pod_of(identity: str) -> str:
    """Return the pod of a replica; no pod's name has an underscore."""
    return identity.partition(_SUFFIX)[0]


class LeaderLabel:
    """Keeps the label of one pod as `leadership` says; `problem` is why it cannot, or empty."""

    def __init__(
        self, client: KubeClient, namespace: str, pod: str, leadership: Leadership
    ) -> None:
        self._client, self._namespace, self._pod = client, namespace, pod
        self._leadership = leadership
        self.problem = ""

    async def run(self) -> None:
        """Write the label at the start, and whenever this replica begins or ceases to lead."""
        written: bool | None = None  # a container that restarts has the label of its last run
        while True:
            wanted = self._leadership.is_leading
            if wanted == written:
                await asyncio.sleep(_LOOK_SECONDS)
            elif await self._settle(leads=wanted):
                written = wanted
            else:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _settle(self, *, leads: bool) -> bool:
        """Write the labels of this pod and of a leader that died; whether all are written."""
        try:
            await self._write(self._pod, leads=leads)
        except ApiError as error:
            self.problem = f"{LEADER_LABEL} of pod {self._namespace}/{self._pod}: {error}"
            log.warning("the Service cannot find the leading proxy", problem=self.problem)
            return False
        self.problem = ""
        dead = pod_of(self._leadership.predecessor) if leads else ""
        return dead in {"", self._pod} or await self._relieve(dead)

    async def _relieve(self, dead: str) -> bool:
        """Take the label of the pod of a dead leader; whether nothing is left to try."""
        try:
            await self._write(dead, leads=False)
        except NotFound:
            return True
        except ApiError as error:
            log.warning("a leader that died keeps its label", pod=dead, problem=str(error))
            return not error.retryable
        return True

    async def _write(self, pod: str, *, leads: bool) -> None:
        patch = {"metadata": {"labels": {LEADER_LABEL: "true" if leads else None}}}
        await self._client.patch(PODS, pod, patch, self._namespace, subresource="status")
