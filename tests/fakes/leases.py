"""Replicas that compete for a Lease, and clients with a bad connection to the API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from devcluster.demo.cluster import write_account_kubeconfig
from ipuhub.kube.client import KubeClient
from ipuhub.kube.errors import Unreachable
from ipuhub.kube.leaderelection import LeaderElection, LeaseTiming
from ipuhub.kube.resources import LEASES
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from ipuhub.kube.resources import Manifest

LEASE = "ipuhub-test"
# Nobody loses this Lease because the machine is slow.
STEADY = LeaseTiming(duration_seconds=60.0, renew_deadline_seconds=40.0, retry_seconds=0.05)
# For those who are to lose it.
QUICK = LeaseTiming(duration_seconds=1.0, renew_deadline_seconds=0.6, retry_seconds=0.05)
# Who looks at the Lease only this often has not found out in a test by looking.
SELDOM = LeaseTiming(duration_seconds=300.0, renew_deadline_seconds=200.0, retry_seconds=100.0)
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"


class Replica:
    """Counts who works at the same time."""

    def __init__(
        self,
        client: KubeClient,
        place: str,
        name: str,
        at_work: list[str],
        timing: LeaseTiming = STEADY,
    ) -> None:
        self.name = name
        self.at_work = at_work
        self.election = LeaderElection(client, place, LEASE, name, timing)
        self.works = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.task = asyncio.create_task(self.election.lead(self.work))

    async def work(self) -> None:
        self.at_work.append(self.name)
        assert len(self.at_work) == 1, "two replicas work at the same time"
        self.works.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.at_work.remove(self.name)

    async def until_works(self) -> None:
        waiting = asyncio.create_task(self.works.wait())
        await asyncio.wait({waiting, self.task}, timeout=90, return_when="FIRST_COMPLETED")
        waiting.cancel()
        assert self.works.is_set(), self.task

    async def until_stands_by(self, leader: str) -> None:
        await eventually(lambda: self.election.holder == leader)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class SlowThenGone(KubeClient):
    """Writes, but says so only after half the time there is to renew; then there is no server."""

    armed = False
    is_gone = False
    reads = 0

    async def get(self, *args: Any, **more: Any) -> Manifest:
        self.reads += 1
        if self.is_gone:
            raise Unreachable("gone")
        return await super().get(*args, **more)

    async def patch(self, *args: Any, **more: Any) -> Manifest:
        answer = await super().patch(*args, **more)
        if self.armed:
            self.is_gone = True
            await asyncio.sleep(0.5)
        return answer


class Silent(KubeClient):
    """Asks a server that from some time on does not answer."""

    is_silent = False

    async def get(self, *args: Any, **more: Any) -> Manifest:
        if self.is_silent:
            await asyncio.Event().wait()
        return await super().get(*args, **more)


async def lease(client: KubeClient, place: str) -> dict[str, Any]:
    found = await client.get(LEASES, LEASE, place)
    spec: dict[str, Any] = found["spec"]
    return spec


async def take(client: KubeClient, place: str, **changes: Any) -> None:
    """Write a Lease that its holder never renews."""
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 3}
    held["renewTime"] = "2036-01-01T00:00:00.000000Z"  # its clock was ahead: that is not compared
    meta = {"name": LEASE, "namespace": place}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
    await client.create(LEASES, body | {"spec": held | changes})


async def with_rights(client: KubeClient, kubeconfig: Path, place: str, *verbs: str) -> Path:
    """The kubeconfig of an account that has these rights on the Lease, by its name."""
    account = {"metadata": {"name": "candidate", "namespace": place}}
    await client.request("POST", f"/api/v1/namespaces/{place}/serviceaccounts", body=account)
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [LEASE],
        "verbs": list(verbs),
    }
    subject = {"kind": "ServiceAccount", "name": "candidate", "namespace": place}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "candidate"}
    binding = account | {"roleRef": reference, "subjects": [subject]}
    base = f"{RIGHTS}/namespaces/{place}"
    await client.request("POST", f"{base}/roles", body=account | {"rules": [rule]})
    await client.request("POST", f"{base}/rolebindings", body=binding)
    folder = kubeconfig.parent / place
    folder.mkdir()
    return await write_account_kubeconfig(client, kubeconfig, folder, f"{place}/candidate")


async def until_ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def for_ever() -> None:
    await asyncio.Event().wait()
