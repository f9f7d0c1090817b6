"""The additional keys of /stats and /query for clients that request details."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from partitions.vipu.errors import NoAnswer
from tests.integration.proxy.conftest import TWO

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site


@pytest.fixture
def two(site: Site) -> Site:
    """Two controllers of 32 IPUs; of the first 8 and 2 IPUs are held."""
    site.world.add_vipu("v2:8090")
    site.world.listed = TWO
    site.proxy.fleet.reload()
    site.world.vipu.by_hand("mine", 8)
    site.world.vipu.by_hand("small", 2)
    return site


async def query(site: Site, **body: Any) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    status, text = await site.send("POST", "/query", data=json.dumps(body), headers=headers)
    assert status == 200
    found: dict[str, Any] = json.loads(text)
    return found


async def test_query_counts_on_the_controller_that_is_asked_for(two: Site) -> None:
    assert (await query(two, size=8))["numOfPartitions"] == 6
    assert (await query(two, size=8, controller="v1:8090"))["numOfPartitions"] == 2
    assert (await query(two, size=8, controller="v2:8090"))["numOfPartitions"] == 4


async def test_query_says_when_fewer_than_the_count_fit(two: Site) -> None:
    assert await query(two, size=8, count=6) == await query(two, size=8)
    answer = await query(two, size=8, count=7)
    assert answer == {
        "available": True,
        "numOfPartitions": 6,
        "message": "6 of 7 partitions fit now",
    }


async def test_query_in_detail_names_the_free_blocks_and_why_no_larger_one_fits(two: Site) -> None:
    answer = await query(two, size=2, detail=True)
    assert (answer["numOfPartitions"], answer["largestFitting"]) == (27, 32)
    assert "64 IPUs never fit" in answer["whyNotLarger"]
    first, second = answer["controllers"]
    assert (first["address"], first["numOfPartitions"], first["freeIpus"]) == ("v1:8090", 11, 22)
    blocks = [(block["start"], block["size"]) for block in first["freeBlocks"]]
    assert blocks == [(10, 2), (12, 4), (16, 16)]
    assert [block["size"] for block in second["freeBlocks"]] == [32]
    answer = await query(two, size=2, detail=True, controller="v1:8090")
    assert answer["largestFitting"] == 16
    assert answer["whyNotLarger"] == (
        "32 IPUs in one block are needed and not free now; blocks have up to 32"
    )


async def test_query_in_detail_counts_nothing_where_no_node_has_the_label(two: Site) -> None:
    two.world.unlabelled = {"vipu-ctrl=v2"}
    answer = await query(two, size=32, detail=True)
    assert (answer["numOfPartitions"], answer["largestFitting"]) == (0, 16)
    assert [each["numOfPartitions"] for each in answer["controllers"]] == [0, 0]
    assert [each["hasNode"] for each in answer["controllers"]] == [True, False]


async def test_stats_in_detail_adds_controllers_sizes_and_drift(two: Site) -> None:
    await two.put("a", namespace="detail", size=16)
    plain = json.loads((await two.get("/stats"))[1])
    status, text = await two.get("/stats?detail=true")
    answer = json.loads(text)
    assert status == 200
    assert {**answer["namespaces"], "total": answer["total"]} == plain
    assert [(each["totalIpus"], each["usedIpus"]) for each in answer["controllers"]] == [
        (32, 26),
        (32, 0),
    ]
    sizes = {each["size"]: each["numOfPartitions"] for each in answer["sizes"]}
    assert sizes == {1: 38, 2: 19, 4: 9, 8: 4, 16: 2, 32: 1, 64: 0}
    assert set(answer["drift"]) == {"unfinished", "lost", "faulty", "replaced", "late", "untracked"}


async def test_stats_in_detail_says_which_controllers_get_no_calls_and_since_when(
    two: Site,
) -> None:
    await two.get("/stats")
    two.world.vipu.down = NoAnswer("v1:8090: no answer in 3 s")
    two.world.later(2)
    for _ in range(2):
        answer = json.loads((await two.get("/stats?detail=true"))[1])
    first, second = (each["circuit"] for each in answer["controllers"])
    when = "2026-11-21T08:00:02Z"
    assert first == {
        "state": "open",
        "since": when,
        "nextTry": when,
        "orders": [],
    }  # without a pause here
    assert second == {"state": "closed", "since": None, "nextTry": None, "orders": []}
    assert answer["controllers"][0]["message"] == (
        f"v1:8090: no answer in 3 s; no calls since {when}, next try at {when}"
    )


async def test_a_detail_that_is_neither_true_nor_false_is_refused(two: Site) -> None:
    status, text = await two.get("/stats?detail=perhaps")
    assert (status, json.loads(text)["detail"]) == (400, "detail must be true or false")
    assert (await two.get("/stats?detail=false"))[1] == (await two.get("/stats"))[1]
