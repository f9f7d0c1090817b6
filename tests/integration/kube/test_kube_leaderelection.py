"""Leadership by a Lease, on an embedded or a given API server."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import structlog.testing

from devcluster.server import DevCluster
from ipuhub import VERSION_ANNOTATION, __version__
from ipuhub.kube import leaderelection as lease_module
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import Unreachable
from ipuhub.kube.leaderelection import LeadershipLost, LeaseHeld
from ipuhub.kube.resources import LEASES, NAMESPACES
from ipuhub.process.leadership import Leadership, LeadershipOptions
from tests.fakes.leases import (
    LEASE,
    QUICK,
    SELDOM,
    STEADY,
    Replica,
    Silent,
    SlowThenGone,
    for_ever,
    lease,
    take,
    until_ended,
    with_rights,
)
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


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


async def test_one_works_and_the_other_follows_on_a_clean_stop(
    client: KubeClient, place: str
) -> None:
    at_work: list[str] = []
    first = Replica(client, place, "a", at_work)
    await first.until_works()
    second = Replica(client, place, "b", at_work)
    await second.until_stands_by("a")
    assert not second.works.is_set()
    held = await client.get(LEASES, LEASE, place)
    assert held["metadata"]["annotations"] == {VERSION_ANNOTATION: __version__}
    old = {"metadata": {"annotations": {VERSION_ANNOTATION: "0.0.9"}}}
    await client.patch(LEASES, LEASE, old, place)
    await first.stop()
    await second.until_works()
    held = await client.get(LEASES, LEASE, place)
    assert held["metadata"]["annotations"] == {VERSION_ANNOTATION: __version__}
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
    await take(client, place, leaseDurationSeconds=300, leaseTransitions=2**31 - 1)
    given = await with_rights(client, kubeconfig, place, "get", "patch")
    async with KubeClient(load_config(str(given))) as limited:
        replica = Replica(limited, place, "a", [])
        await replica.until_stands_by("dead")
        await eventually(lambda: limited.calls["watch", "leases"])
        await client.patch(LEASES, LEASE, {"spec": {"holderIdentity": ""}}, place)
        await replica.until_works()
        await replica.stop()
        assert limited.calls["watch", "leases"] == 1  # it does not insist
    assert (await lease(client, place))["leaseTransitions"] == 0  # the API server takes no more


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


async def test_who_gets_no_answer_stops_working(client: KubeClient, place: str) -> None:
    async with Silent(client.config) as unlucky:
        replica = Replica(unlucky, place, "a", [], QUICK)
        await replica.until_works()
        unlucky.is_silent = True
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(replica.task, 90)
    assert replica.at_work == []


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


async def test_who_stood_still_does_not_lead_even_before_it_finds_out(
    client: KubeClient, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(client, place, "a", [])
    await replica.until_works()
    assert STEADY.duration_seconds >= replica.election.left_seconds > STEADY.duration_seconds - 40
    stood_still, clock = STEADY.renew_deadline_seconds + 1, lease_module.clock_seconds
    monkeypatch.setattr(lease_module, "clock_seconds", lambda: clock() + stood_still)
    assert not replica.task.done()
    assert (replica.election.is_leading, replica.election.left_seconds) == (False, 0.0)
    monkeypatch.undo()
    assert replica.election.is_leading
    await replica.stop()


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
    with structlog.testing.capture_logs() as logged:
        replica = Replica(client, place, "a", [])
        await replica.until_stands_by("dead")
        for number in range(12):
            renewed = {"renewTime": f"2036-01-01T00:00:{number:02}.000000Z"}
            await client.patch(LEASES, LEASE, {"spec": renewed}, place)
            await asyncio.wait({replica.task}, timeout=0.2)
    assert not replica.works.is_set()
    assert [entry["event"] for entry in logged] == ["standing by"]  # once, however often it looks
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


async def test_who_stands_by_says_why(client: KubeClient, place: str) -> None:
    leadership = Leadership(
        client, LeadershipOptions(namespace=place, lease=LEASE, identity="a", timing=QUICK)
    )
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
        leadership = Leadership(
            unlucky, LeadershipOptions(namespace=place, lease=LEASE, identity="a", timing=QUICK)
        )
        with structlog.testing.capture_logs() as logged:
            task = asyncio.create_task(leadership.lead(for_ever))
            await eventually(lambda: leadership.problem == "gone")
            await eventually(lambda: unlucky.reads > 3)
        assert [e["event"] for e in logged].count("cannot reach the Lease") == 1
        assert leadership.standby == "this replica stands by: gone"
        for _ in range(2):  # who has lost the Lease stands by again
            unlucky.is_gone = False
            await eventually(lambda: leadership.is_leading and not leadership.problem)
            unlucky.is_gone = True
            await eventually(lambda: not leadership.is_leading)
        await until_ended(task)


async def test_a_namespace_that_is_missing_is_named_and_waited_for(
    client: KubeClient, place: str
) -> None:
    missing = f"{place}-later"
    leadership = Leadership(
        client, LeadershipOptions(namespace=missing, lease=LEASE, identity="a", timing=QUICK)
    )
    task = asyncio.create_task(leadership.lead(for_ever))
    problem = f"namespace {missing} does not exist: create it"
    await eventually(lambda: leadership.problem.startswith(problem))
    await client.create(NAMESPACES, {"metadata": {"name": missing}})
    await eventually(lambda: leadership.is_leading)
    await until_ended(task)
    await client.delete(NAMESPACES, missing)


async def test_what_the_work_raises_is_raised_and_the_lease_given_back(
    client: KubeClient, place: str
) -> None:
    async def fails() -> None:
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        await Leadership(
            client, LeadershipOptions(namespace=place, lease=LEASE, identity="a", timing=QUICK)
        ).lead(fails)
    assert (await lease(client, place))["holderIdentity"] == ""


async def test_who_does_not_wait_is_refused_by_a_holder_that_is_alive(
    client: KubeClient, place: str
) -> None:
    holder = Replica(client, place, "a", [])
    await holder.until_works()
    began: list[str] = []

    async def work() -> None:
        began.append("b")

    other = Leadership(
        client, LeadershipOptions(namespace=place, lease=LEASE, identity="b", timing=STEADY)
    )
    with pytest.raises(LeaseHeld, match=f"a holds the Lease {place}/ipuhub-test"):
        await asyncio.wait_for(other.lead_now(work), 90)
    assert (began, holder.at_work) == ([], ["a"])
    await holder.stop()
    await other.lead_now(work)
    assert began == ["b"]
    assert (await lease(client, place))["holderIdentity"] == ""


async def test_who_does_not_wait_follows_a_dead_holder_and_tells_of_a_server_that_is_away(
    client: KubeClient, place: str
) -> None:
    await take(client, place)
    began: list[str] = []

    async def work() -> None:
        began.append((await lease(client, place))["holderIdentity"])

    await Leadership(
        client, LeadershipOptions(namespace=place, lease=LEASE, identity="a", timing=STEADY)
    ).lead_now(work)
    await Leadership(client, None).lead_now(work)
    assert began == ["a", ""]
    async with SlowThenGone(client.config) as unlucky:
        unlucky.is_gone = True
        other = Leadership(
            unlucky, LeadershipOptions(namespace=place, lease=LEASE, identity="a", timing=STEADY)
        )
        with pytest.raises(Unreachable):
            await other.lead_now(work)
