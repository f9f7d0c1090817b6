"""A large job among small jobs, over real sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from partitions.proxy.queue import QueueOptions
from tests.integration.proxy.conftest import TWO, World, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.proxy.conftest import Site

HELD = "held back for an older job that needs 64 IPUs"
AFTER = 30.0


@pytest.fixture(params=["told", "published"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """One rack of 64 IPUs."""
    made = World(
        published_only=request.param == "published", turns=QueueOptions(reserve_after_seconds=AFTER)
    )
    for address in ("v1:8090", "v2:8090"):
        made.add_vipu(address, machines=16)
    yield made
    for service in made.running:
        await service.stop()


async def put(site: Site, name: str, size: int) -> tuple[str, str]:
    """Phase and message of the answer."""
    _, text = await site.put(name, size=size)
    found: dict[str, Any] = json.loads(text)
    return found["phase"], found["message"]


async def remove(site: Site, name: str) -> None:
    await site.send("DELETE", f"/v1/partitions/uid-{name}/0", user="operator")


async def a_large_one_waits(site: Site, seconds: float = AFTER + 1) -> None:
    assert (await put(site, "running", 8))[0] == "active"
    assert (await put(site, "large", 64))[0] == "waiting"
    site.world.later(seconds)
    assert (await put(site, "large", 64))[0] == "waiting"


async def test_newer_jobs_are_held_back_for_an_old_large_one_until_it_is_served(
    site: Site,
) -> None:
    await a_large_one_waits(site)
    assert await put(site, "small", 1) == ("waiting", HELD)
    assert site.proxy.service.waiting.held_back(site.world.now) == 1
    assert len(site.world.entries()) == 1
    await remove(site, "running")
    assert await put(site, "small", 1) == ("waiting", HELD)
    assert (await put(site, "large", 64))[0] == "active"
    phase, message = await put(site, "small", 1)
    assert (phase, "IPUs in one block are needed" in message) == ("waiting", True)
    assert site.proxy.service.waiting.held_back(site.world.now) == 0
    await remove(site, "large")
    assert (await put(site, "small", 1))[0] == "active"


async def test_nobody_is_held_back_before_the_time_and_never_with_0(site: Site) -> None:
    await a_large_one_waits(site, AFTER - 1)
    assert (await put(site, "small", 1))[0] == "active"
    site.world.turns = QueueOptions()
    other = await site.world.start()
    for _ in range(3):
        site.world.later(50)
        answer = await other.service.ensure(request("large", size=64))
        assert answer.phase == "waiting"
    assert (await other.service.ensure(request("tiny", size=1))).phase == "active"


async def test_only_one_controller_is_kept(site: Site) -> None:
    site.world.listed = TWO
    site.proxy.fleet.reload()
    assert (await put(site, "other", 64))[0] == "active"  # on the first
    await a_large_one_waits(site)
    await remove(site, "other")
    assert (await put(site, "running-2", 16))[0] == "active"
    assert {entry.controller for entry in site.world.entries() if entry.name == "running-2"} == {
        "v2:8090"
    }


async def test_a_job_that_can_never_fit_holds_back_nobody(site: Site) -> None:
    site.world.vipu.by_hand("mine", 1)  # no job of ours, which would end
    await a_large_one_waits(site)
    assert (await put(site, "small", 1))[0] == "active"


async def test_a_job_that_asks_no_more_is_forgotten(site: Site) -> None:
    await a_large_one_waits(site)
    assert (await put(site, "small", 1))[1] == HELD
    site.world.later(61)
    assert (await put(site, "small", 1))[0] == "active"


async def test_a_job_that_is_released_waits_no_more(site: Site) -> None:
    await a_large_one_waits(site)
    await remove(site, "large")
    assert (await put(site, "small", 1))[0] == "active"


async def test_stats_and_query_count_what_is_free_whoever_waits(site: Site) -> None:
    await a_large_one_waits(site)
    assert (await put(site, "small", 1))[1] == HELD
    status, text = await site.send("POST", "/query", json={"size": 8})
    assert (status, json.loads(text)["numOfPartitions"]) == (200, 7)
    assert json.loads((await site.get("/stats"))[1])["total"] == {"used": 8, "available": 56}
