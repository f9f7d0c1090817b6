"""Two proxies: the leader holds partitions, the other serves only its health until takeover."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from ipuhub.kube.leaderelection import LeaseHeld, LeaseTiming
from ipuhub.kube.resources import LEASES, PODS
from ipuhub.process.leaderlabel import LEADER_LABEL, identity_of
from ipuhub.process.leadership import LeadershipOptions
from partitions.errors import NotLeading
from partitions.proxy.process import running, sweep_once
from tests.fakes.proxylab import JOB, SYSTEM, read_path, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from partitions.proxy.process import ProxyOptions
    from tests.fakes.proxylab import Lab

# Nobody loses this Lease because the machine is slow.
STEADY = LeaseTiming(duration_seconds=60.0, renew_deadline_seconds=40.0, retry_seconds=0.05)
# Who looks at the Lease only this often has not found out in a test by looking.
SELDOM = LeaseTiming(duration_seconds=300.0, renew_deadline_seconds=200.0, retry_seconds=100.0)


def as_replica(lab: Lab, identity: str, timing: LeaseTiming = STEADY) -> ProxyOptions:
    election = LeadershipOptions(
        namespace=SYSTEM, lease=lab.tracker, identity=identity, timing=timing
    )
    return replace(lab.options, election=election)


async def test_the_standby_says_who_leads_and_goes_on_where_the_other_stopped(lab: Lab) -> None:
    async with AsyncExitStack() as first_life, AsyncExitStack() as second_life:
        first = await first_life.enter_async_context(running(as_replica(lab, "a")))
        await eventually(lambda: ready(first))
        second = await second_life.enter_async_context(running(as_replica(lab, "b", SELDOM)))
        await eventually(lambda: second.leadership.holder == "a")

        async with lab.operator(first) as operator:
            record = await operator.ensure(**JOB)
        assert await read_path(second, "/health") == (200, "ok")
        assert await read_path(second, "/healthz") == (200, "ok")
        status, body = await read_path(second, "/readyz")
        assert (status, "this replica stands by: a leads" in body) == (503, True)
        for path in ("/stats", "/v1/partitions", f"/v1/partitions/{JOB['uid']}/0"):
            status, body = await read_path(second, path)
            assert (status, "a leads" in body) == (503, True), path
        url = f"http://127.0.0.1:{second.port}/v1/partitions/{JOB['uid']}/0"
        async with aiohttp.ClientSession() as http, http.delete(url) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        controller = f"127.0.0.1:{lab.vipu_port}"
        with pytest.raises(NotLeading):
            await second.fleet.api(controller).remove_partition(record.id)
        assert await lab.exists() == [record.id]

        await first_life.aclose()  # a clean stop
        await eventually(lambda: ready(second))
        async with lab.operator(second) as operator:
            found = await operator.ensure(**JOB)
            assert (found.id, found.phase) == (record.id, "active")
            await operator.release(JOB["uid"], 0)
        assert await lab.exists() == []


async def test_who_loses_the_lease_writes_nothing_any_more(lab: Lab) -> None:
    async with running(as_replica(lab, "a")) as proxy:
        await eventually(lambda: ready(proxy))
        usurped = {"spec": {"holderIdentity": "b"}}
        await lab.client.patch(LEASES, lab.tracker, usurped, SYSTEM)
        await eventually(lambda: not proxy.leadership.is_leading)
        status, body = await read_path(proxy, "/v1/partitions")
        assert (status, "b leads" in body) == (503, True)
        assert await lab.exists() == []


async def test_who_leads_again_knows_what_the_other_has_written_meanwhile(lab: Lab) -> None:
    async with running(as_replica(lab, "a")) as first:
        await eventually(lambda: ready(first))
        async with running(as_replica(lab, "b")) as second:
            await eventually(lambda: second.leadership.holder == "a")
            await lab.client.patch(LEASES, lab.tracker, {"spec": {"holderIdentity": "b"}}, SYSTEM)
            await eventually(lambda: ready(second))
            async with lab.operator(second) as operator:
                record = await operator.ensure(**JOB)
            assert not first.leadership.is_leading
        await eventually(lambda: ready(first))
        assert [entry.id for entry in first.store.tracker.entries.values()] == [record.id]
        async with lab.operator(first) as operator:
            assert (await operator.ensure(**JOB)).id == record.id
            await operator.release(JOB["uid"], 0)
        assert await lab.exists() == []


async def test_one_sweep_is_refused_while_another_proxy_leads(lab: Lab) -> None:
    async with running(as_replica(lab, "a")) as proxy:
        await eventually(lambda: ready(proxy))
        with pytest.raises(LeaseHeld, match="a holds the Lease"):
            await sweep_once(as_replica(lab, "b"))
    await sweep_once(as_replica(lab, "b"))
    assert (await lab.client.get(LEASES, lab.tracker, SYSTEM))["spec"]["holderIdentity"] == ""


async def labelled(lab: Lab) -> list[str]:
    """The pods that a Service would send the proxy's requests to."""
    pods = await lab.client.list(PODS, SYSTEM, label_selector=f"{LEADER_LABEL}=true")
    return [one["metadata"]["name"] for one in pods.items]


async def make_pods(lab: Lab, *names: str) -> None:
    """These pods of the proxy, and no others: a given cluster also has the pods of other tests."""
    for one in (await lab.client.list(PODS, SYSTEM, label_selector="app=proxy")).items:
        await lab.client.delete(PODS, one["metadata"]["name"], SYSTEM, grace_period_seconds=0)
    container = {"name": "vipu-proxy", "image": "example.com/proxy:1"}
    for name in names:
        metadata = {"name": name, "labels": {"app": "proxy"}}
        body = {"metadata": metadata, "spec": {"containers": [container]}}
        await lab.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, SYSTEM)


async def test_with_a_label_for_the_service_a_standby_is_ready_and_gets_no_requests(
    lab: Lab,
) -> None:
    await make_pods(lab, "one", "two")
    first_options = replace(as_replica(lab, "a"), pod="one")
    second_options = replace(as_replica(lab, "b"), pod="two")
    async with AsyncExitStack() as first_life, running(second_options) as second:
        await eventually(lambda: second.leadership.is_leading)
        await eventually(lambda: labelled(lab), lambda found: found == ["two"])
        first = await first_life.enter_async_context(running(first_options))
        await eventually(lambda: first.leadership.holder == "b")
        await eventually(lambda: ready(first))
        await eventually(lambda: ready(second))
        assert (await read_path(first, "/stats"))[0] == 503
        assert await labelled(lab) == ["two"]
        await lab.client.patch(LEASES, lab.tracker, {"spec": {"holderIdentity": "a"}}, SYSTEM)
        await eventually(lambda: first.leadership.is_leading)
        await eventually(lambda: labelled(lab), lambda found: found == ["one"])


async def test_a_container_that_restarts_takes_the_label_of_its_last_run_away(lab: Lab) -> None:
    await make_pods(lab, "again", "other")
    async with running(replace(as_replica(lab, "a"), pod="again")):
        await eventually(lambda: labelled(lab), lambda found: found == ["again"])
    async with running(replace(as_replica(lab, "b"), pod="other")):
        await eventually(lambda: labelled(lab), lambda found: found == ["again", "other"])
        async with running(replace(as_replica(lab, "a"), pod="again")) as standby:
            await eventually(lambda: labelled(lab), lambda found: found == ["other"])
            await eventually(lambda: ready(standby))


@pytest.mark.parametrize("dead", ["one", "gone"])
async def test_who_takes_over_from_a_dead_leader_takes_its_label_too(lab: Lab, dead: str) -> None:
    await make_pods(lab, "one", "two")
    if dead == "one":
        label = {"metadata": {"labels": {LEADER_LABEL: "true"}}}
        await lab.client.patch(PODS, dead, label, SYSTEM)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lab.tracker, "namespace": SYSTEM},
        "spec": {"holderIdentity": identity_of(dead, "5eed"), "leaseDurationSeconds": 1},
    }
    await lab.client.create(LEASES, lease)
    async with running(replace(as_replica(lab, "b"), pod="two")) as heir:
        await eventually(lambda: labelled(lab), lambda found: found == ["two"])
        await eventually(lambda: ready(heir))


async def test_a_leader_that_cannot_label_its_pod_is_not_ready_and_says_why(lab: Lab) -> None:
    async with running(replace(as_replica(lab, "a"), pod="gone")) as proxy:
        await eventually(lambda: proxy.leadership.is_leading)
        problem = f"{LEADER_LABEL} of pod {SYSTEM}/gone"
        await eventually(lambda: read_path(proxy, "/readyz"), lambda found: problem in found[1])
        assert not await ready(proxy)
