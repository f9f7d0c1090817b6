"""Holdings of partitions and capacity come to Postgres from a real proxy and its tracker."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.resources import CONFIG_MAPS, NAMESPACES
from ipuhub.kube.token import TokenSource
from ipuhub.models import RecordFault, WatchCheckpoint
from partitions.client import ProxyClient
from partitions.errors import ProxyRefused
from partitions.models import CapacityChange, PartitionLifetime
from partitions.proxy.process import running
from partitions.proxy.sweep import SweepOptions
from partitions.proxy.tracker import decode_entry
from partitions.vipu.client import CreateRequest, VipuClient
from tests.builders.ipujobs import ipujob
from tests.fakes.proxylab import JOB, SYSTEM, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from partitions.proxy.process import ProxyProcess
    from tests.integration.recorders.conftest import Site


@asynccontextmanager
async def proxy_on(site: Site) -> AsyncIterator[tuple[ProxyProcess, ProxyClient]]:
    """A proxy that keeps tombstones until they are acknowledged, and the operator's client."""
    sweep = SweepOptions(every_seconds=0.1, tombstone_seconds=0, needs_recorder=True)
    options = replace(site.lab.options, sweep=sweep)
    async with running(options) as proxy, site.lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        site.proxy_url = f"http://127.0.0.1:{proxy.port}"
        yield proxy, operator


async def tracked(site: Site) -> dict[str, str]:
    found = await site.lab.client.get(CONFIG_MAPS, site.lab.tracker, SYSTEM)
    return found.get("data") or {}


async def edit(site: Site, **data: str | None) -> None:
    await site.lab.client.patch(CONFIG_MAPS, site.lab.tracker, {"data": data}, SYSTEM)


def held(**conditions: Any) -> bool:
    return PartitionLifetime.objects.filter(**conditions).exists()


async def test_a_holding_is_recorded_and_its_tombstone_may_then_go(site: Site) -> None:
    patch = {"metadata": {"labels": {"ipuhub.io/group": "team-a"}}}
    await site.lab.client.patch(NAMESPACES, "default", patch)
    job = await site.make(ipujob().annotated(**{"ipuhub.io/created-by": "ada"}).build())
    mine = {**JOB, "uid": job["metadata"]["uid"], "name": "sample"}
    async with proxy_on(site) as (_, operator):
        async with site.probing():
            record = await operator.ensure(**mine)
            await eventually(lambda: held(phase="active"))
            one = PartitionLifetime.objects.get()
            assert (one.key, one.job_uid, one.size) == (record.key, mine["uid"], 4)
            assert (one.partition, one.controller) == (record.id, record.controller)
            assert (one.reserved_at, one.active_at) == (record.reserved_at, record.active_at)
            assert (one.released_at, one.estimated) == (None, False)
            await eventually(lambda: held(machines={"ag0": [0, 1, 2, 3]}))
            gone = await operator.release(mine["uid"], 0)
            await eventually(lambda: held(phase="released"))
        assert gone is not None
        one = PartitionLifetime.objects.get()
        assert (one.released_at, one.estimated, one.uncertainty_seconds) == (
            gone.released_at,
            False,
            0,
        )
        assert (one.group, one.user) == ("team-a", "ada")
        async with site.probing():

            async def is_dropped() -> bool:
                return not await tracked(site)

            await eventually(is_dropped)
    assert PartitionLifetime.objects.get().released_at == gone.released_at


async def test_a_proxy_that_is_away_is_told_later_and_recording_goes_on(site: Site) -> None:
    async with proxy_on(site) as (_, operator):
        await operator.ensure(**JOB)
        gone = await operator.release(JOB["uid"], 0)
    assert gone is not None
    site.proxy_url = "http://127.0.0.1:1"
    async with site.probing() as prober:
        await eventually(lambda: held(released_at=gone.released_at))
        await eventually(lambda: prober.parts.acknowledger.problem)
        await eventually(lambda: prober.parts.capacity.problem)
        await eventually(lambda: all(not one.problem for one in prober.recordings))
    assert "recorded" not in (await tracked(site))[gone.key]
    async with proxy_on(site), site.probing():

        async def is_dropped() -> bool:
            return not await tracked(site)

        await eventually(is_dropped)
    assert PartitionLifetime.objects.get().released_at == gone.released_at


async def test_what_was_released_while_the_prober_was_away_has_exact_times(site: Site) -> None:
    async with proxy_on(site) as (_, operator):
        async with site.probing():
            await operator.ensure(**JOB)
            await eventually(lambda: held(phase="active"))
        gone = await operator.release(JOB["uid"], 0)
        again = await operator.ensure(**{**JOB, "attempt": 1})
        assert gone is not None
        async with site.probing():
            await eventually(lambda: PartitionLifetime.objects.count() == 2)
    first, second = PartitionLifetime.objects.order_by("reserved_at")
    assert (first.released_at, first.estimated) == (gone.released_at, False)
    assert (second.key, second.attempt, second.released_at) == (again.key, 1, None)


async def test_an_entry_that_vanishes_ends_estimated_and_comes_back_if_it_does(
    site: Site,
) -> None:
    async with proxy_on(site) as (_, operator):
        record = await operator.ensure(**JOB)
    text = (await tracked(site))[record.key]
    async with site.probing():
        await eventually(lambda: held(phase="active"))
        await edit(site, **{record.key: None})
        await eventually(lambda: held(estimated=True))
        one = PartitionLifetime.objects.get()
        assert (one.phase, one.reason) == ("released", "Vanished")
        assert one.released_at >= record.active_at
        assert one.uncertainty_seconds <= 60
        await edit(site, **{record.key: text})
        await eventually(lambda: held(estimated=False, released_at=None, phase="active"))


async def test_what_vanished_while_nobody_watched_says_how_uncertain_its_end_is(
    site: Site,
) -> None:
    async with proxy_on(site) as (_, operator):
        await operator.ensure(**JOB)
    async with site.probing():
        await eventually(lambda: held(phase="active"))
    before = WatchCheckpoint.objects.get(name="tracker").position_at
    await site.lab.client.delete(CONFIG_MAPS, site.lab.tracker, SYSTEM)
    WatchCheckpoint.objects.update(selection="something else")  # so that a list is needed
    async with site.probing():
        await eventually(lambda: held(estimated=True))
    one = PartitionLifetime.objects.get()
    uncertain = (one.released_at - before).total_seconds()
    assert uncertain <= one.uncertainty_seconds <= uncertain + 1


async def test_an_unreadable_entry_is_a_fault_and_no_end(site: Site) -> None:
    async with proxy_on(site) as (_, operator):
        record = await operator.ensure(**JOB)
    text = (await tracked(site))[record.key]
    async with site.probing():
        await eventually(lambda: held(phase="active"))
        await edit(site, **{record.key: "{", "odd": "nothing"})
        await eventually(lambda: RecordFault.objects.count() == 2)
        fault = RecordFault.objects.get(uid=record.key)
        assert (fault.watch, fault.code, fault.excerpt) == ("tracker", "unreadable-entry", "{")
        assert fault.name == site.lab.tracker
        assert record.key in fault.message
        other = {**json.loads(text), "name": "another", "id": "p-2"}
        await edit(site, **{"uid-2.0.7": json.dumps(other)})
        await eventually(lambda: held(partition="p-2"))
    assert PartitionLifetime.objects.get(key=record.key).released_at is None
    assert RecordFault.objects.get(uid="odd").count == 1
    assert decode_entry(record.key, text).id == record.id


async def test_capacity_is_written_only_when_it_changes(site: Site) -> None:
    async with proxy_on(site) as (_, operator), site.probing() as prober:

        def last() -> tuple[Any, ...] | None:
            rows = CapacityChange.objects.order_by("-at")
            return rows.values_list("total", "free", "faulty", "reachable").first()

        await eventually(lambda: last() == (32, 32, 0, True))
        await operator.ensure(**JOB)
        await eventually(lambda: last() == (32, 28, 0, True))
        assert [await prober.parts.capacity.once() for _ in range(3)] == [0, 0, 0]
        async with VipuClient(f"127.0.0.1:{site.lab.vipu_port}") as vipu:
            await vipu.create_partition(CreateRequest("by-hand", 8))
        await eventually(lambda: last() == (32, 20, 0, True))
        await site.lab.stop_vipu()
        await eventually(lambda: last() == (32, 20, 0, False))
        site.lab.start_vipu()
        await eventually(lambda: last() == (32, 20, 0, True))
    count = CapacityChange.objects.count()
    async with proxy_on(site), site.probing() as prober:
        assert await prober.parts.capacity.once() == 0
    assert CapacityChange.objects.count() == count


async def test_the_probers_account_may_not_touch_partitions(site: Site) -> None:
    account = f"{SYSTEM}/ipuhub-prober"
    async with proxy_on(site) as (proxy, _):
        token = TokenSource(site.lab.client, account, "ipuhub-proxy")
        async with ProxyClient(f"http://127.0.0.1:{proxy.port}", token) as client:
            assert (await client.controllers())["items"]
            await client.acknowledge(["nothing"])
            with pytest.raises(Exception, match="may not update ipujobs/partitions") as refusal:
                await client.ensure(**JOB)
    assert not isinstance(refusal.value, ProxyRefused)  # a right may be given later: retryable
