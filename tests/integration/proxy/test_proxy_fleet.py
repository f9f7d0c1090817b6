"""/v1/fleet: each IPU, its holder, and the queue for each block, from one snapshot."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.partition import Phase
from partitions.proxy.fleetanswer import FleetAnswer, FleetParts
from partitions.proxy.fleetmap import fleet_to_json
from partitions.proxy.queue import QueueOptions, Waiter
from partitions.vipu.agent.simulatedinventory import serial
from partitions.vipu.errors import InvalidRequest, NoAnswer
from partitions.vipu.telemetry import Heartbeat, Sensors, heartbeat_from_json
from partitions.vipu.types import OperationState, ReadyState
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import TWO

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site


async def fleet(site: Site) -> dict[str, Any]:
    status, text = await site.get("/v1/fleet", user="operator")
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def held(found: dict[str, Any], address: str = "v1:8090") -> dict[str, int]:
    """Return the number of squares of each partition on the map."""
    (controller,) = [each for each in found["controllers"] if each["address"] == address]
    names = [ipu["partition"] for machine in controller["machines"] for ipu in machine["ipus"]]
    return {name: names.count(name) for name in {*names} - {None}}


async def test_only_who_may_list_all_partitions_sees_the_fleet(site: Site) -> None:
    assert (await site.get("/v1/fleet"))[0] == 401
    assert (await site.get("/v1/fleet", user="stranger"))[0] == 403
    assert (await site.get("/v1/fleet", user="prober"))[0] == 200


async def test_a_machine_tells_the_last_heartbeat_of_its_agent(site: Site) -> None:
    place = "/v1/fleet/machine?controller=v1:8090&agent="
    assert (await site.get(f"{place}ag0"))[0] == 401
    assert (await site.get(f"{place}ag0", user="stranger"))[0] == 403
    status, text = await site.get(f"{place}ag1", user="operator")
    assert (status, json.loads(text)) == (200, {"heardAt": None, "ipus": []})
    heard = Heartbeat(datetime(2026, 11, 26, 8, tzinfo=UTC), {0: Sensors(41.5, 98.0)})
    site.world.vipu.heartbeats["ag0"] = heard
    status, text = await site.get(f"{place}ag0", user="operator")
    assert (status, heartbeat_from_json(json.loads(text))) == (200, heard)
    assert (await site.get(f"{place}ag99", user="operator"))[0] == 404
    unknown = place.replace("v1:", "v9:")
    assert (await site.get(f"{unknown}ag0", user="operator"))[0] == 400


async def test_each_ipu_is_with_the_job_or_the_person_that_holds_it(site: Site) -> None:
    await site.put("bert", namespace="blue", size=4)
    site.world.vipu.by_hand("mine", 8)
    found = await fleet(site)
    assert held(found) == {"p-bert-blue-0": 4, "mine": 8}
    (controller,) = found["controllers"]
    assert (controller["nodeSelector"], controller["reachable"]) == ({"vipu-ctrl": "v1"}, True)
    assert len(controller["machines"]) == 8
    partitions = {each["id"]: each for each in controller["partitions"]}
    assert partitions["mine"] == {"id": "mine", "size": 8, "state": "ACTIVE", "job": None}
    assert partitions["p-bert-blue-0"]["job"] == {
        "uid": "uid-bert",
        "namespace": "blue",
        "name": "bert",
        "instance": 0,
        "phase": "active",
        "since": "2026-11-21T08:00:00.000Z",
    }


async def test_a_machine_says_what_it_is_made_of(site: Site) -> None:
    (controller,) = (await fleet(site))["controllers"]
    first = controller["machines"][0]
    assert first["hardware"] == {
        "boardType": "M2000",
        "boardSerial": serial("ag0"),
        "clock": "1330MHz",
        "firmware": "2.6.0",
        # Only IPUHub's own controller says it.
        **({} if site.world.published_only else {"software": "2.6.0"}),
    }
    assert [ipu["device"] for ipu in first["ipus"]] == [0, 1, 2, 3]
    assert all("hardware" not in ipu for ipu in first["ipus"])


async def test_a_controller_says_its_version_and_without_an_answer_keeps_its_place(
    site: Site,
) -> None:
    (controller,) = (await fleet(site))["controllers"]
    assert controller["version"] == "1.18.0"
    site.world.vipu.version_error = InvalidRequest("unknown method")
    site.world.later(60)
    (controller,) = (await fleet(site))["controllers"]
    assert (controller["reachable"], controller["version"]) == (True, "1.18.0")
    site.world.vipu.version_error, site.world.vipu.release = None, "1.19.0"
    site.world.later(60)
    (controller,) = (await fleet(site))["controllers"]
    assert controller["version"] == "1.19.0"


async def test_a_partition_in_error_says_so(site: Site) -> None:
    await site.put()
    site.world.vipu.partitions["p-job-default-0"].ready = ReadyState.ERROR
    (controller,) = (await fleet(site))["controllers"]
    assert [each["state"] for each in controller["partitions"]] == ["ERROR"]


async def test_partitions_that_are_being_removed_say_so_and_only_those(site: Site) -> None:
    await site.put("ended", size=4)
    site.world.vipu.by_hand("mine", 8)
    site.world.vipu.by_hand("fresh", 2)
    site.world.vipu.partitions["fresh"].polls_left = 10**6
    vipu = site.world.vipu.partitions
    vipu["mine"].ready, vipu["mine"].operation = ReadyState.PENDING, OperationState.REMOVING
    vipu["fresh"].ready, vipu["fresh"].operation = ReadyState.PENDING, OperationState.CREATING
    site.world.vipu.removes_slowly = True
    ending = asyncio.create_task(site.proxy.service.release("uid-ended", 0))
    await eventually(lambda: vipu["p-ended-default-0"].operation is OperationState.REMOVING)
    found = await fleet(site)
    (controller,) = found["controllers"]
    assert {each["id"]: each["state"] for each in controller["partitions"]} == {
        "p-ended-default-0": "REMOVING",
        "mine": "REMOVING",
        "fresh": "PENDING",
    }
    assert held(found) == {"p-ended-default-0": 4, "mine": 8, "fresh": 2}
    vipu.clear()
    await ending


async def test_its_numbers_are_those_of_stats_and_query(site: Site) -> None:
    await site.put("a", size=4)
    await site.put("b", size=1)
    site.world.vipu.by_hand("mine", 8)
    found = await fleet(site)
    assert found["stats"] == json.loads((await site.get("/stats"))[1])
    assert [fit["size"] for fit in found["fits"]] == [1, 2, 4, 8, 16, 32]
    for fit in found["fits"]:
        _, text = await site.send("POST", "/query", json={"size": fit["size"]})
        assert fit["count"] == json.loads(text)["numOfPartitions"]
        assert fit["count"] == sum(place["count"] for place in fit["places"])
    (controller,) = found["controllers"]
    free = sum(each["size"] * each["count"] for each in controller["freeBlocks"])
    assert (controller["largestBlock"], free) == (32, found["stats"]["total"]["available"])


async def test_a_size_that_fits_nowhere_names_the_block_that_comes_free_first(site: Site) -> None:
    await site.put("small", size=1)
    fits = {fit["size"]: fit for fit in (await fleet(site))["fits"]}
    assert (fits[32]["places"], fits[32]["blockers"]) == ([], ["p-small-default-0"])
    assert (fits[32]["inTheWay"], fits[32]["block"]["size"]) == (1, 32)


async def test_who_waits_stands_in_the_order_of_service_with_what_is_in_the_way(
    site: Site,
) -> None:
    await site.put("small", size=1)
    await site.put("large", size=32)
    site.world.later(5)
    await site.put("huge", size=64)
    first, second = (await fleet(site))["queue"]
    assert (first["uid"], first["size"], first["never"]) == ("uid-large", 32, "")
    assert (first["inTheWay"], first["blockers"]) == (1, ["p-small-default-0"])
    assert first["since"] == "2026-11-21T08:00:00.000Z"
    block = first["block"]
    assert (block["controller"], block["start"], block["size"]) == ("v1:8090", 0, 32)
    assert (second["uid"], second["block"], second["blockers"]) == ("uid-huge", None, [])
    assert "never fit" in second["never"]


async def test_who_is_served_waits_no_more(site: Site) -> None:
    await site.put("small", size=1)
    await site.put("large", size=32)
    await site.send("DELETE", "/v1/partitions/uid-small/0", user="operator")
    await site.put("large", size=32)
    found = await fleet(site)
    assert found["queue"] == []
    assert held(found) == {"p-large-default-0": 32}


async def test_the_block_with_the_least_in_the_way_is_named(site: Site) -> None:
    site.world.listed = TWO
    site.world.add_vipu("v2:8090")
    site.proxy.fleet.reload()
    await site.put("a", size=32)
    await site.put("b", size=2)
    await site.put("large", size=32)
    (waiting,) = (await fleet(site))["queue"]
    assert waiting["block"]["controller"] == "v2:8090"
    assert (waiting["inTheWay"], waiting["blockers"]) == (2, ["p-b-default-0"])


async def test_who_would_fit_but_for_an_older_job_says_so(site: Site) -> None:
    object.__setattr__(
        site.proxy.service.waiting, "_options", QueueOptions(reserve_after_seconds=30.0)
    )
    await site.put("running", size=8)
    await site.put("large", size=32)
    site.world.later(31)
    await site.put("large", size=32)
    await site.put("small", size=1)
    found = await fleet(site)
    queue = {each["uid"]: each["heldBack"] for each in found["queue"]}
    assert queue == {"uid-large": False, "uid-small": True}
    assert found["reserveAfterSeconds"] == 30.0


async def test_ipus_of_no_node_fit_nothing(site: Site) -> None:
    site.world.unlabelled = {"vipu-ctrl=v1"}
    found = await fleet(site)
    assert found["fits"] == []
    assert [each["hasNode"] for each in found["controllers"]] == [False]


async def test_a_silent_controller_keeps_its_last_answer_with_its_age(site: Site) -> None:
    """However long it is silent; sums count it for a minute."""
    await site.put()
    machines = (await fleet(site))["controllers"][0]["machines"]
    site.world.vipu.down = NoAnswer("v1:8090: connection refused")
    for seconds, age in ((20, 20), (60, 80), (3600, 3680)):
        site.world.later(seconds)
        headers = {"Authorization": "Bearer operator"}
        async with site.http.get(site.url + "/v1/fleet", headers=headers) as answer:
            found = await answer.json()
            assert (answer.status, answer.headers["Age"]) == (200, str(age))
        (controller,) = found["controllers"]
        assert (controller["reachable"], controller["ageSeconds"]) == (False, age)
        assert controller["machines"] == machines
        assert "connection refused" in controller["message"]
        assert (await site.get("/stats"))[0] == (200 if age < 60 else 503)


async def answer_of(site: Site, etag: str = "") -> tuple[int, str, str]:
    """Return status, ETag and text."""
    headers = {"Authorization": "Bearer operator"} | ({"If-None-Match": etag} if etag else {})
    async with site.http.get(site.url + "/v1/fleet", headers=headers) as answer:
        return answer.status, answer.headers["ETag"], await answer.text()


async def test_the_fleet_has_an_etag_that_changes_with_anything_it_shows(site: Site) -> None:
    """A partition, a job that waits, a node, a removal, an agent, a controller that is silent, and
    the second of its age."""
    now = site.world

    async def wait_for_all() -> None:
        await site.put("large", size=32)

    async def leave() -> None:
        await site.send("DELETE", "/v1/partitions/uid-job/0", user="operator")

    def cordon() -> None:
        now.vipu.cordons = {"ag7": "maintenance"}
        now.later(20)

    async def fall_silent() -> None:
        now.vipu.down = NoAnswer("v1:8090: connection refused")
        now.later(20)
        for _ in range(3):  # until no calls are sent to it for a while, which the fleet says, too
            await answer_of(site)

    changes = (
        site.put,
        wait_for_all,
        lambda: now.unlabelled.add("vipu-ctrl=v1"),
        *(() if now.published_only else (cordon,)),
        leave,
        fall_silent,
        lambda: now.later(1),
    )
    _, etag, text = await answer_of(site)
    for change in changes:
        assert await answer_of(site, etag) == (304, etag, "")
        if (done := change()) is not None:
            await done
        status, new, body = await answer_of(site, etag)
        assert (status, new != etag, body != text) == (200, True, True), change
        etag, text = new, body


async def test_each_part_of_the_fleet_counts_for_its_etag(site: Site) -> None:
    """Alone: also a change of the tracker that no list of a controller shows yet."""
    await site.put()
    (view,) = await site.proxy.fleet.views()
    tracker = site.proxy.store.tracker
    (entry,) = tracker.entries.values()
    leaving = replace(entry, phase=Phase.RELEASING)
    written = {name: replace(shard, resource_version="x") for name, shard in tracker.shards.items()}
    changed = replace(tracker, shards=written, entries={entry.key: leaving})
    waiter = Waiter(("uid-large", 0), 32, site.world.now, site.world.now)
    first = FleetParts([view], tracker, [], frozenset(), 0.0)
    for parts in (
        replace(first, views=[]),
        replace(first, views=[replace(view, age_seconds=2.0)]),
        replace(first, tracker=changed),
        replace(first, waiting=[(waiter, False)]),
        replace(first, removals=frozenset({(view.spec.address, entry.id)})),
        replace(first, reserve_after_seconds=30.0),
    ):
        answer = FleetAnswer()
        answer.update(first)
        etag = answer.etag
        answer.update(parts)
        assert answer.etag != etag, parts


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The answers that the proxy has written."""
    found: list[object] = []

    def write(*parts: Any, **options: Any) -> Any:
        found.append(fleet_to_json(*parts, **options))
        return found[-1]

    monkeypatch.setattr("partitions.proxy.fleetanswer.fleet_to_json", write)
    return found


async def test_an_unchanged_fleet_is_not_written_again(site: Site, written: list[object]) -> None:
    """Also for requests without a tag, and while a waiting job repeats its request."""
    await site.put()
    await site.put("large", size=32)
    for _ in range(3):
        site.world.later(0.5)
        await site.put("large", size=32)
        await answer_of(site)
    assert len(written) == 1


async def test_a_silent_controller_is_written_once_a_second(
    site: Site, written: list[object]
) -> None:
    """Its age is in the answer, in whole seconds."""
    await site.put()
    view = replace((await site.proxy.fleet.views())[0], age_seconds=3.2, problem="refused")
    answer = FleetAnswer()
    for age in (3.2, 3.3, 3.4, 4.2):
        views = [replace(view, age_seconds=age)]
        answer.update(FleetParts(views, site.proxy.store.tracker, [], frozenset(), 0.0))
    assert len(written) == 2


async def test_a_controller_that_never_answered_is_named_by_the_fleet(site: Site) -> None:
    site.world.vipu.down = NoAnswer("v1:8090: connection refused")
    (controller,) = (await fleet(site))["controllers"]
    assert (controller["reachable"], controller["machines"]) == (False, [])
    assert "connection refused" in controller["message"]


async def test_what_lies_outside_our_cluster_is_drawn_and_not_counted(site: Site) -> None:
    site.world.vipu.clusters = {"c": "a", "d": "b"}
    site.world.listed = "v1:8090:vipu-ctrl=v1;cluster=c"
    site.proxy.fleet.reload()
    (controller,) = (await fleet(site))["controllers"]
    squares = [ipu for machine in controller["machines"] for ipu in machine["ipus"]]
    # Such a controller does not say where its IPUs belong: any may be ours.
    outside = 0 if site.world.published_only else 32
    assert (len(squares), sum(bool(ipu.get("outside")) for ipu in squares)) == (64, outside)
