"""Leadership by a Lease, on an embedded or a given API server."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import structlog.testing

from ipuhub.demo.cluster import write_account_kubeconfig
from ipuhub.devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import Unreachable
from ipuhub.kube.lease import LeaderElection, LeadershipLost, LeaseTiming
from ipuhub.kube.resources import LEASES, NAMESPACES
from ipuhub.leading import Leadership, LeadershipOptions
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.types import Manifest

LEASE = "ipuhub-test"
# Nobody loses this one because the machine is slow.
STEADY = LeaseTiming(duration_seconds=60.0, renew_deadline_seconds=40.0, retry_seconds=0.05)
# For those who are to lose it.
QUICK = LeaseTiming(duration_seconds=1.0, renew_deadline_seconds=0.6, retry_seconds=0.05)
# Who looks at the Lease only this often has not found out in a test by looking.
SELDOM = LeaseTiming(duration_seconds=300.0, renew_deadline_seconds=200.0, retry_seconds=100.0)
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
async def cluster(tmp_path: Path, given_cluster: str) -> AsyncIterator[DevCluster | None]:
    if given_cluster:
        yield None
        return
    server = DevCluster(tmp_path / "cluster", authorization="rbac")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def kubeconfig(cluster: DevCluster | None, given_cluster: str) -> Path:
    return cluster.kubeconfig if cluster is not None else Path(given_cluster)


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient(load_config(str(kubeconfig))) as opened:
        yield opened


@pytest.fixture
async def place(client: KubeClient) -> AsyncIterator[str]:
    """A namespace of the test's own."""
    name = f"lease-{uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.create(NAMESPACES, body)
    yield name
    with contextlib.suppress(Unreachable):  # a test has stopped the server
        await client.delete(NAMESPACES, name)


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
    asked = 0

    async def get(self, *args: Any, **more: Any) -> Manifest:
        self.asked += 1
        if self.is_gone:
            raise Unreachable("gone")
        return await super().get(*args, **more)

    async def patch(self, *args: Any, **more: Any) -> Manifest:
        answer = await super().patch(*args, **more)
        if self.armed:
            self.is_gone = True
            await asyncio.sleep(0.5)
        return answer


async def lease(client: KubeClient, place: str) -> dict[str, Any]:
    found = await client.get(LEASES, LEASE, place)
    spec: dict[str, Any] = found["spec"]
    return spec


async def take(client: KubeClient, place: str, **changes: Any) -> None:
    """Write a Lease of somebody who never renews it."""
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


async def test_one_works_and_the_other_follows_on_a_clean_stop(
    client: KubeClient, place: str
) -> None:
    at_work: list[str] = []
    first = Replica(client, place, "a", at_work)
    await first.until_works()
    second = Replica(client, place, "b", at_work)
    await second.until_stands_by("a")
    assert not second.works.is_set()
    await first.stop()
    await second.until_works()
    assert (await lease(client, place))["holderIdentity"] == "b"
    assert (await lease(client, place))["leaseTransitions"] == 1
    await second.stop()
    assert (await lease(client, place))["holderIdentity"] == ""


async def test_a_released_or_deleted_lease_is_taken_long_before_the_next_look(
    client: KubeClient, kubeconfig: Path, place: str
) -> None:
    await take(client, place, leaseDurationSeconds=300)
    # No right to list, nor to watch any other.
    given = await with_rights(client, kubeconfig, place, "get", "watch", "patch")
    async with KubeClient(load_config(str(given))) as limited:
        replica = Replica(limited, place, "a", [], SELDOM)
        await replica.until_stands_by("dead")
        await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": ""}}, place)
        await replica.until_works()
        await replica.stop()
    await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": "dead"}}, place)
    replica = Replica(client, place, "b", [], SELDOM)
    await replica.until_stands_by("dead")
    await client.delete(LEASES, LEASE, place)
    await replica.until_works()
    await replica.stop()


async def test_who_may_not_watch_looks_every_few_seconds(
    client: KubeClient, kubeconfig: Path, place: str
) -> None:
    await take(client, place, leaseDurationSeconds=300)
    given = await with_rights(client, kubeconfig, place, "get", "patch")
    async with KubeClient(load_config(str(given))) as limited:
        replica = Replica(limited, place, "a", [])
        await replica.until_stands_by("dead")
        await eventually(lambda: limited.calls["watch", "leases"])
        await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": ""}}, place)
        await replica.until_works()
        await replica.stop()
        assert limited.calls["watch", "leases"] == 1  # it does not insist


async def test_a_silent_leader_is_followed_when_its_lease_is_over(
    client: KubeClient, place: str
) -> None:
    await take(client, place)
    began = asyncio.get_running_loop().time()
    replica = Replica(client, place, "a", [], SELDOM)  # it looks when the Lease runs out
    await replica.until_works()
    assert asyncio.get_running_loop().time() - began >= 1.0
    assert (await lease(client, place))["leaseTransitions"] == 4
    await replica.stop()


async def test_the_lease_is_renewed_until_the_work_has_ended_and_then_given_back(
    client: KubeClient, place: str
) -> None:
    at_work: list[str] = []
    first = Replica(client, place, "a", at_work)
    await first.until_works()
    second = Replica(client, place, "b", at_work)
    await second.until_stands_by("a")
    first.may_end.clear()  # a write is under way
    first.task.cancel()
    taken = await lease(client, place)
    for _ in range(2):  # the first may have been on its way
        before = (await lease(client, place))["renewTime"]

        async def renewed(before: str = before) -> bool:
            return bool((await lease(client, place))["renewTime"] != before)

        await eventually(renewed)
    assert at_work == ["a"]
    assert first.election.is_leading
    now = await lease(client, place)
    assert all(now[name] == taken[name] for name in ("acquireTime", "leaseTransitions"))
    first.may_end.set()
    await second.until_works()
    await second.stop()


async def test_who_cannot_renew_stops_working(
    client: KubeClient, place: str, cluster: DevCluster | None
) -> None:
    unlucky = SlowThenGone(client.config)
    async with unlucky:
        replica = Replica(unlucky, place, "a", [], QUICK)
        await replica.until_works()
        if cluster is not None:
            await cluster.stop()
        unlucky.is_gone = True
        with pytest.raises(LeadershipLost, match=f"lost the Lease {place}/ipuhub-test"):
            await asyncio.wait_for(replica.task, 90)
    assert replica.at_work == []
    assert not replica.election.is_leading


async def test_a_renewal_counts_from_its_question_not_from_a_late_answer(
    client: KubeClient, place: str
) -> None:
    at_work: list[str] = []
    async with SlowThenGone(client.config) as unlucky:
        first = Replica(unlucky, place, "a", at_work, QUICK)
        await first.until_works()
        second = Replica(client, place, "b", at_work)
        await second.until_stands_by("a")
        unlucky.armed = True
        await second.until_works()  # and is alone
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(first.task, 90)
        await second.stop()


async def test_who_is_replaced_stops_working(client: KubeClient, place: str) -> None:
    replica = Replica(client, place, "a", [])
    await replica.until_works()
    replica.may_end.clear()
    await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": "b"}}, place)
    await eventually(lambda: not replica.election.is_leading)
    assert replica.at_work == ["a"]  # it says so before it has ended
    replica.may_end.set()
    with pytest.raises(LeadershipLost, match="b holds it now"):
        await asyncio.wait_for(replica.task, 90)


async def test_who_is_replaced_leaves_the_lease_to_the_other(
    client: KubeClient, place: str
) -> None:
    replica = Replica(client, place, "a", [], SELDOM)
    await replica.until_works()
    await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": "b"}}, place)
    await replica.stop()
    assert (await lease(client, place))["holderIdentity"] == "b"


async def test_who_renews_keeps_the_lease_for_longer_than_it_lasts(
    client: KubeClient, place: str
) -> None:
    await take(client, place, leaseDurationSeconds=2)
    replica = Replica(client, place, "a", [])
    await replica.until_stands_by("dead")
    for number in range(12):
        renewed = {"renewTime": f"2036-01-01T00:00:{number:02}.000000Z"}
        await client.patch(LEASES, LEASE, {"spec": renewed}, place)
        await asyncio.wait({replica.task}, timeout=0.2)
    assert not replica.works.is_set()
    await replica.stop()


async def test_of_many_that_see_a_lease_released_one_works(client: KubeClient, place: str) -> None:
    at_work: list[str] = []
    with structlog.testing.capture_logs() as logged:
        replicas = [Replica(client, place, f"r{n}", at_work, SELDOM) for n in range(6)]
        for _ in range(len(replicas)):
            await eventually(lambda: any(r.works.is_set() for r in replicas))
            leader = next(r for r in replicas if r.works.is_set())
            others = [r for r in replicas if r is not leader]
            await asyncio.gather(*(r.until_stands_by(leader.name) for r in others))
            assert at_work == [leader.name]
            await leader.stop()
            replicas.remove(leader)
    assert at_work == []
    assert not [entry for entry in logged if entry["log_level"] == "warning"]  # to lose is no fault


async def until_ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_who_stands_by_says_why(client: KubeClient, place: str) -> None:
    leadership = Leadership(client, LeadershipOptions(place, LEASE, "a", QUICK))
    assert leadership.standby == "this replica stands by: not decided yet"
    await take(client, place, leaseDurationSeconds=300)
    task = asyncio.create_task(leadership.lead(for_ever))
    await eventually(lambda: leadership.holder == "dead")
    assert (leadership.standby, leadership.problem) == ("this replica stands by: dead leads", "")
    assert not leadership.is_leading
    await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": ""}}, place)
    await eventually(lambda: leadership.is_leading)
    assert (leadership.standby, leadership.problem, leadership.holder) == ("", "", "a")
    await until_ended(task)


async def test_a_server_that_is_away_is_the_reason_until_it_is_back(
    client: KubeClient, place: str
) -> None:
    async with SlowThenGone(client.config) as unlucky:
        unlucky.is_gone = True
        leadership = Leadership(unlucky, LeadershipOptions(place, LEASE, "a", QUICK))
        with structlog.testing.capture_logs() as logged:
            task = asyncio.create_task(leadership.lead(for_ever))
            await eventually(lambda: leadership.problem == "gone")
            await eventually(lambda: unlucky.asked > 3)
        assert [e["event"] for e in logged].count("cannot reach the Lease") == 1
        assert leadership.standby == "this replica stands by: gone"
        for _ in range(2):  # who has lost the Lease stands by again
            unlucky.is_gone = False
            await eventually(lambda: leadership.is_leading and not leadership.problem)
            unlucky.is_gone = True
            await eventually(lambda: not leadership.is_leading)
        await until_ended(task)


async def test_what_the_work_raises_is_raised_and_the_lease_given_back(
    client: KubeClient, place: str
) -> None:
    async def fails() -> None:
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        await Leadership(client, LeadershipOptions(place, LEASE, "a", QUICK)).lead(fails)
    assert (await lease(client, place))["holderIdentity"] == ""
