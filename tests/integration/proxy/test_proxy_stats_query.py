"""/stats and /query, as people with curl read them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from partitions.vipu.errors import NoAnswer
from partitions.vipu.types import CreateRequest
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import World, request

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
JSON = {"Content-Type": "application/json"}


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


async def query(site: Site, body: str | bytes, headers: dict[str, str] = JSON) -> tuple[int, str]:
    return await site.send("POST", "/query", data=body, headers=headers)


async def test_stats_and_query_print_what_they_always_printed(site: Site) -> None:
    site.world.vipu.machines = 16
    site.world.vipu.by_hand("mine", 32)
    await site.put()
    assert await site.get("/stats") == (200, golden("stats.json"))
    assert await query(site, '{"size":2}') == (200, golden("query-2.json"))
    assert await query(site, '{"size":64}') == (200, golden("query-64.json"))


async def test_stats_without_partitions_has_the_total_only(site: Site) -> None:
    assert await site.get("/stats") == (200, golden("stats-empty.json"))
    await site.put()
    await site.send("DELETE", "/v1/partitions/uid-job/0", user="operator")
    assert await site.get("/stats") == (200, golden("stats-empty.json"))


async def test_stats_counts_used_by_namespace_and_available_in_the_fleet(site: Site) -> None:
    await site.put("a", namespace="blue", size=8)
    await site.put("b", namespace="blue", size=2)
    await site.put("c", namespace="amber", size=4)
    status, text = await site.get("/stats")
    assert status == 200
    assert list(json.loads(text).items()) == [
        ("amber", {"used": 4, "available": 18}),
        ("blue", {"used": 10, "available": 18}),
        ("total", {"used": 14, "available": 18}),
    ]


async def test_partitions_made_by_hand_lower_available_and_are_never_used(site: Site) -> None:
    site.world.vipu.by_hand("mine", 8)
    assert json.loads((await site.get("/stats"))[1]) == {"total": {"used": 0, "available": 24}}


async def test_stats_adds_up_the_controllers(site: Site) -> None:
    site.world.add_vipu("v2:8090", machines=2)
    site.world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    site.proxy.fleet.reload()
    assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 40
    assert json.loads((await query(site, '{"size":8}'))[1])["numOfPartitions"] == 5


async def test_stats_and_query_count_one_cluster_and_allocation_only(site: Site) -> None:
    site.world.vipu.clusters = {"c": "a", "d": "b"}
    site.world.vipu.by_hand("mine", 32)  # all of the first cluster
    site.world.listed = "v1:8090:vipu-ctrl=v1;allocation=a"
    site.proxy.fleet.reload()
    if site.world.published_only:  # what is held in "a" is known, of the rest nobody says whose
        assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 32
        return
    assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 0
    assert json.loads((await query(site, '{"size":1}'))[1])["numOfPartitions"] == 0


async def test_what_partitions_say_of_other_allocations_counts(site: Site) -> None:
    site.world.vipu.by_hand("mine", 8, "b")
    site.world.listed = "v1:8090:vipu-ctrl=v1;allocation=a"
    site.proxy.fleet.reload()
    status, text = await site.get("/v1/controllers", user="operator")
    (controller,) = json.loads(text)["items"]
    assert status == 200
    assert controller["free"] == 24
    if site.world.published_only:
        assert controller["total"] == 24


async def test_two_clusters_of_one_controller_are_counted_apart(site: Site) -> None:
    """Both number their domains from 0."""
    site.world.vipu.clusters = {"c": "a", "d": "b"}
    site.world.vipu.machines = 4
    for name in ("one", "two"):
        site.world.vipu.by_hand(name, 16)
    assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 0
    for size in (1, 4, 16):
        answer = json.loads((await query(site, json.dumps({"size": size})))[1])
        assert answer == {"available": True, "numOfPartitions": 0, "message": ""}
    assert (await site.put(size=1))[0] == 202
    del site.world.vipu.partitions["two"]
    site.world.seconds += 1  # a stranger's change is seen within a second
    assert json.loads((await query(site, '{"size":16}'))[1])["numOfPartitions"] == 1
    assert json.loads((await site.put(size=16))[1])["phase"] == "active"


@pytest.mark.parametrize("setting", ["", ";allocation=a", ";cluster=c", ";cluster=c;allocation=a"])
async def test_a_job_gets_its_partition_whatever_is_set(site: Site, setting: str) -> None:
    """Also where no IPU says in which allocation and cluster it is."""
    site.world.listed = "v1:8090:vipu-ctrl=v1" + setting
    site.proxy.fleet.reload()
    for name in ("one", "two"):
        assert json.loads((await site.put(name))[1])["phase"] == "active"
    assert json.loads((await site.get("/stats"))[1])["total"] == {"used": 8, "available": 24}


@pytest.mark.parametrize(("size", "want"), [(1, 28), (2, 14), (4, 7), (8, 3), (16, 1), (32, 0)])
async def test_query_says_how_many_fit_now_by_the_placement_rule(
    site: Site, size: int, want: int
) -> None:
    await site.put()
    answer = json.loads((await query(site, json.dumps({"size": size})))[1])
    assert answer == {"available": True, "numOfPartitions": want, "message": ""}


async def test_query_counts_blocks_and_not_just_free_ipus(site: Site) -> None:
    for number in range(4):
        site.world.vipu.by_hand(f"filler-{number}", 8)
    for number in (0, 2):
        del site.world.vipu.partitions[f"filler-{number}"]
    assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 16
    assert json.loads((await query(site, '{"size":16}'))[1])["numOfPartitions"] == 0
    assert json.loads((await query(site, '{"size":8}'))[1])["numOfPartitions"] == 2


@pytest.mark.parametrize("size", [3, 6, 65, 128, 10**30])
async def test_query_for_a_size_that_cannot_be_counts_none_and_says_why(
    site: Site, size: int
) -> None:
    status, text = await query(site, json.dumps({"size": size}))
    answer = json.loads(text)
    assert status == 200
    assert (answer["available"], answer["numOfPartitions"]) == (True, 0)
    assert "power of two" in answer["message"] or "at most 64" in answer["message"]


async def test_query_leaves_out_controllers_whose_label_no_node_has(site: Site) -> None:
    site.world.unlabelled = {"vipu-ctrl=v1"}
    answer = json.loads((await query(site, '{"size":2}'))[1])
    assert (answer["available"], answer["numOfPartitions"]) == (True, 0)
    says = "no job can use the IPUs of v1:8090: label a node with vipu-ctrl=v1"
    assert answer["message"] == says
    assert json.loads((await site.get("/stats"))[1]) == {"total": {"used": 0, "available": 0}}
    site.world.add_vipu("v2:8090")
    site.world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    site.proxy.fleet.reload()
    answer = json.loads((await query(site, '{"size":2}'))[1])
    assert answer == {"available": True, "numOfPartitions": 16, "message": says}
    assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 32


async def test_query_for_a_size_that_nobody_has_says_never(site: Site) -> None:
    answer = json.loads((await query(site, '{"size":64}'))[1])
    assert (answer["available"], answer["numOfPartitions"]) == (True, 0)
    assert "64 IPUs never fit" in answer["message"]
    waiting = json.loads((await site.put(size=64))[1])
    assert (waiting["phase"], "never fit" in waiting["message"]) == ("waiting", True)
    site.world.add_vipu("v2:8090", down=NoAnswer("v2:8090: refused"))  # it may have them
    site.world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    site.proxy.fleet.reload()
    assert json.loads((await query(site, '{"size":64}'))[1])["message"] == ""


def no_calls(at: str) -> str:
    """The third call in a row had no answer; in this world the next call may try at once."""
    return f"no calls since 2026-11-21T{at}Z, next try at 2026-11-21T{at}Z"


async def test_query_is_unavailable_only_when_no_controller_answers(site: Site) -> None:
    site.world.add_vipu("v2:8090")
    site.world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    site.proxy.fleet.reload()
    site.world.vipu.down = NoAnswer("v1:8090: refused")
    answer = json.loads((await query(site, '{"size":2}'))[1])
    assert (answer["available"], answer["numOfPartitions"]) == (True, 16)
    site.world.vipus["v2:8090"].down = NoAnswer("v2:8090: refused")
    site.world.later(60)
    status, text = await query(site, '{"size":2}')
    assert status == 200
    assert json.loads(text) == {
        "available": False,
        "numOfPartitions": 0,
        "message": f"no V-IPU controller answers: v1:8090: refused; {no_calls('08:01:00')}; "
        "v2:8090: refused",
    }


async def test_a_single_refusal_is_asked_again_and_changes_nothing(site: Site) -> None:
    for _ in range(2):
        site.world.vipu.down_once = [NoAnswer("v1:8090: connection reset")]
        assert await site.get("/stats") == (200, golden("stats-empty.json"))
        site.world.vipu.down_once = [NoAnswer("v1:8090: connection reset")]
        assert json.loads((await query(site, '{"size":4}'))[1])["numOfPartitions"] == 8
    site.world.vipu.down_once = [NoAnswer("v1:8090: connection reset")]
    assert json.loads((await site.put())[1])["phase"] == "active"


async def test_a_silent_controllers_last_numbers_are_told_with_their_age(site: Site) -> None:
    await site.put()
    assert (await site.get("/stats"))[0] == 200
    site.world.vipu.down = NoAnswer("v1:8090: refused")
    site.world.later(7)
    async with site.http.get(site.url + "/stats") as answer:
        assert (answer.status, await answer.text()) == (200, golden("stats.json"))
        assert answer.headers["Age"] == "7"
    async with site.http.post(site.url + "/query", json={"size": 2}) as answer:
        assert await answer.json() == {
            "available": True,
            "numOfPartitions": 14,
            "message": "as of 7 s ago, since a V-IPU controller does not answer: v1:8090: refused; "
            f"{no_calls('08:00:07')}",
        }
        assert answer.headers["Age"] == "7"
    assert json.loads((await site.put("other"))[1])["reason"] == "ControllerUnavailable"
    site.world.later(60)
    assert (await site.get("/stats"))[0] == 503
    assert json.loads((await query(site, '{"size":2}'))[1])["available"] is False
    site.world.vipu.down = None
    async with site.http.get(site.url + "/stats") as answer:
        assert "Age" not in answer.headers


async def test_stats_without_any_controller_is_503_and_not_a_wrong_number(site: Site) -> None:
    site.world.vipu.down = NoAnswer("v1:8090: refused")
    async with site.http.get(site.url + "/stats") as answer:
        assert answer.status == 503
        assert answer.content_type == "application/problem+json"
        assert answer.headers["Retry-After"] == "2"
        assert (await answer.json(content_type=None))["detail"] == "v1:8090: refused"


@pytest.mark.parametrize(
    ("body", "headers", "says"),
    [
        ("", JSON, "no body"),
        ("  ", JSON, "no body"),
        ("two", JSON, "not valid JSON"),
        (b"\xff\xfe\x00", JSON, "not valid JSON"),
        ("[" * 100_000, JSON, "more than"),
        ("[" * 50_000, JSON, "not valid JSON"),
        ('{"size":' + "1" * 5000 + "}", JSON, "not valid JSON"),
        ("[2]", JSON, "JSON object"),
        ("2", JSON, "JSON object"),
        ("{}", JSON, "size is missing"),
        ('{"size":0}', JSON, "at least 1"),
        ('{"size":-2}', JSON, "at least 1"),
        ('{"size":2.0}', JSON, "whole number"),
        ('{"size":2.5}', JSON, "whole number"),
        ('{"size":true}', JSON, "whole number"),
        ('{"size":null}', JSON, "whole number"),
        ('{"size":"2"}', JSON, "whole number"),
        ('{"size":[2]}', JSON, "whole number"),
        ('{"size":NaN}', JSON, "whole number"),
        ('{"size":2,"count":0}', JSON, "count must be a whole number"),
        ('{"size":2,"count":"3"}', JSON, "count must be a whole number"),
        ('{"size":2,"controller":7}', JSON, "controller must be an address"),
        ('{"size":2,"controller":"v9:8090"}', JSON, "no V-IPU controller v9:8090; there is v1:80"),
        ('{"size":2,"detail":"yes"}', JSON, "detail must be true or false"),
        ('{"size":2}', {"Content-Type": "text/plain"}, "application/json"),
        ('{"size":2}', {"Content-Type": "application/x-www-form-urlencoded"}, "application/json"),
        ('{"size":2,"pad":"' + "x" * 70_000 + '"}', JSON, "more than"),
    ],
)
async def test_nonsense_in_query_is_400_with_a_sentence_in_json(
    site: Site, body: str | bytes, headers: dict[str, str], says: str
) -> None:
    status, text = await query(site, body, headers)
    assert status == 400
    assert says in json.loads(text)["detail"]


async def test_query_needs_no_exact_content_type_parameters(site: Site) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert (await query(site, '{"size":2}', headers))[0] == 200


def test_the_world_of_these_tests_is_the_demos() -> None:
    assert World().vipu.machines == 8
    assert request().size == 4


async def test_a_controller_is_asked_once_a_second_for_all_who_read_its_numbers(site: Site) -> None:
    fleet = site.proxy.fleet
    await fleet.recent_views()
    calls = fleet.calls
    for _ in range(3):
        assert (await site.get("/stats"))[0] == 200
        assert (await query(site, '{"size":1}'))[0] == 200
    assert fleet.calls == calls
    site.world.vipu.by_hand("strange", 4)
    site.world.seconds += 0.9
    async with site.http.get(f"{site.url}/stats") as answer:
        assert (await answer.json())["total"]["available"] == 32
        assert answer.headers["Age"] == "1"
    site.world.seconds += 0.1
    async with site.http.get(f"{site.url}/stats") as answer:
        assert (await answer.json())["total"]["available"] == 28
        assert "Age" not in answer.headers


async def test_what_the_proxy_changes_is_in_the_next_answer(site: Site) -> None:
    for size, free in ((4, 28), (8, 20)):
        await site.get("/stats")
        assert (await site.put(f"job-{size}", size=size))[0] in {200, 202}
        numbers = json.loads((await site.get("/stats"))[1])["total"]
        assert numbers == {"used": 32 - free, "available": free}


async def test_a_list_that_was_under_way_during_a_change_is_not_kept(site: Site) -> None:
    """It may have been read before the change."""
    fleet, vipu = site.proxy.fleet, site.world.vipu
    listing = vipu.list_partitions

    async def slowly() -> Any:
        found = await listing()
        vipu.list_partitions = listing  # type: ignore[method-assign]
        await fleet.api("v1:8090").create_partition(CreateRequest("late", 4))
        return found

    vipu.list_partitions = slowly  # type: ignore[method-assign]
    await fleet.recent_views()
    views, _ = await fleet.recent_views()
    assert [partition.id for partition in views[0].partitions] == ["late"]


async def test_nobody_waits_for_the_next_list_while_the_last_one_counts(site: Site) -> None:
    fleet, vipu = site.proxy.fleet, site.world.vipu
    await fleet.recent_views()
    may_answer, listing = asyncio.Event(), vipu.list_partitions

    async def late() -> Any:
        await may_answer.wait()
        return await listing()

    vipu.list_partitions = late  # type: ignore[method-assign]
    vipu.by_hand("strange", 4)
    site.world.seconds += 0.85
    for _ in range(3):
        views, age = await fleet.recent_views()
        assert (views[0].free, round(age, 2)) == (32, 0.85)
    may_answer.set()
    await eventually(fleet.recent_views, lambda answer: answer[0][0].free == 28)
    assert fleet.calls == 2


async def test_an_unchanged_controller_keeps_its_view_and_all_computed_from_it(site: Site) -> None:
    fleet = site.proxy.fleet
    await site.put()
    (first,), _ = await fleet.recent_views()
    assert first.free_blocks is first.free_blocks
    site.world.seconds += 5
    (again,), _ = await fleet.recent_views()
    assert again is first
    site.world.unlabelled.add("vipu-ctrl=v1")
    for _ in range(2):
        assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 0
    site.world.unlabelled.clear()
    site.world.vipu.by_hand("strange", 4)
    site.world.seconds += 5
    assert json.loads((await site.get("/stats"))[1])["total"]["available"] == 24
