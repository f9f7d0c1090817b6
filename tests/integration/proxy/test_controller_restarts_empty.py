"""A V-IPU controller that has lost its state file, in the middle of the work of a whole proxy."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.resources import CONFIG_MAPS
from partitions.proxy.process import running
from partitions.proxy.sweep import SweepOptions
from partitions.proxy.tracker import decode_entry
from tests.fakes.proxylab import JOB, SYSTEM, read_path, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from partitions.client import ProxyClient
    from partitions.proxy.process import ProxyProcess
    from tests.fakes.proxylab import Lab

A_LONG_TIME = 3600.0


def of(name: str) -> dict[str, Any]:
    return {**JOB, "uid": f"uid-{name}", "name": name}


async def phases(operator: ProxyClient) -> dict[str, str]:
    return {one.name: one.phase for one in await operator.list()}


async def tracked(lab: Lab) -> dict[str, str]:
    """Phase by job, as the tracker's ConfigMap says it."""
    stored = await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM)
    entries = [decode_entry(key, text) for key, text in stored["data"].items()]
    return {entry.name: entry.phase.value for entry in entries}


async def drift(proxy: ProxyProcess) -> dict[str, int]:
    """Return the counts of the last sweep."""
    found: dict[str, int] = json.loads((await read_path(proxy, "/stats?detail=true"))[1])["drift"]
    return found


async def work_of_each_kind(lab: Lab, operator: ProxyClient) -> None:
    """One partition ACTIVE, one being created, one whose removal the controller does not hear."""
    for name in ("runs", "ends"):
        assert (await operator.ensure(**of(name))).phase == "active"
    await lab.stop_vipu()
    lab.create_latency_seconds = A_LONG_TIME
    lab.start_vipu()

    async def begins() -> str:
        return (await operator.ensure(**of("begins"))).phase

    await eventually(begins, lambda phase: phase == "creating")
    await eventually(lab.exists, lambda found: len(found) == 3)
    await lab.stop_vipu()
    await operator.release("uid-ends", 0)
    assert await phases(operator) == {"runs": "active", "begins": "creating", "ends": "releasing"}


@pytest.mark.parametrize("proxy_dies", [False, True], ids=["the proxy stays", "the proxy dies"])
async def test_a_controller_restarting_empty_leaves_no_partition_lost_doubled_or_orphaned(
    lab: Lab, proxy_dies: bool
) -> None:
    options = replace(lab.options, sweep=SweepOptions(every_seconds=0.2))
    async with AsyncExitStack() as later:
        async with AsyncExitStack() as first:
            proxy = await first.enter_async_context(running(options))
            operator = await first.enter_async_context(lab.operator(proxy))
            await eventually(lambda: ready(proxy))
            await work_of_each_kind(lab, operator)
            if not proxy_dies:
                later.push_async_exit(first.pop_all())
        lab.lose_state()
        lab.create_latency_seconds = 0.05
        lab.start_vipu()
        if proxy_dies:
            proxy = await later.enter_async_context(running(options))
            operator = await later.enter_async_context(lab.operator(proxy))
            await eventually(lambda: ready(proxy))

        settled = {"runs": "error", "begins": "active", "ends": "released"}
        await eventually(lambda: phases(operator), lambda found: found == settled)
        await eventually(lambda: tracked(lab), lambda found: found == settled)
        (lost,) = [one for one in await operator.list() if one.name == "runs"]
        assert (lost.reason, lost.is_lost) == ("PartitionLost", True)
        assert "no longer knows partition p-runs-default-0" in lost.message
        assert await lab.exists() == ["p-begins-default-0"]
        stats = '{"default":{"used":4,"available":28},"total":{"used":4,"available":28}}'
        assert await read_path(proxy, "/stats") == (200, stats)

        # The next attempt gets IPUs of its own, and is the only partition of its job.
        async def another() -> str:
            return (await operator.ensure(**{**of("runs"), "attempt": 1})).phase

        await eventually(another, lambda phase: phase == "active")
        assert sorted(await lab.exists()) == ["p-begins-default-0", "p-runs-default-0"]
        assert json.loads((await read_path(proxy, "/stats"))[1])["total"]["used"] == 8
        assert await eventually(lambda: drift(proxy), lambda found: not any(found.values()))
        for name in ("runs", "begins"):
            await operator.release(f"uid-{name}", 0)
        assert await lab.exists() == []
        await eventually(lambda: tracked(lab), lambda found: set(found.values()) == {"released"})
