"""The tracker's writer: few patches, no lost update, and what happens when others interfere."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ipuhub.kube.errors import TooManyRequests
from ipuhub.partition import Phase
from partitions.errors import Contradiction, TrackerUnavailable
from partitions.proxy.lifecycle import TrackerEntry
from partitions.proxy.tracker import MAX_SHARD_BYTES, encode_entry
from partitions.proxy.trackerstore import LABEL
from tests.fakes.configmaps import unreachable
from tests.integration.proxy.conftest import START

if TYPE_CHECKING:
    from partitions.proxy.tracker import Draft
    from tests.integration.proxy.conftest import World

NAME = "ipu-partitions-tracker"


def entry(number: int = 0, **given: object) -> TrackerEntry:
    made = TrackerEntry(
        uid=f"uid-{number}",
        instance=0,
        namespace="default",
        name=f"job-{number}",
        attempt=0,
        id=f"p-job-{number}-default-0",
        size=1,
        phase=Phase.RESERVING,
        controller="v1:8090",
        label="vipu-ctrl=v1",
        reserved_at=START,
    )
    return replace(made, **given)  # type: ignore[arg-type]


async def test_the_first_write_makes_the_labelled_map(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry()))
    made = world.maps.objects[NAME]
    assert made["metadata"]["namespace"] == "ipuhub-system"
    assert made["metadata"]["labels"] == {LABEL: NAME}
    assert list(made["data"]) == ["uid-0.0.0"]


async def test_all_waiting_changes_go_out_as_one_patch_of_the_changed_keys(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry(999)))
    gets = world.maps.gets, world.maps.lists

    def put(number: int) -> object:
        return lambda draft: draft.put(entry(number))

    await asyncio.gather(*(proxy.store.write(put(n)) for n in range(64)))  # type: ignore[arg-type]
    (patch,) = world.maps.patches
    assert set(patch) == {"metadata", "data"}
    assert set(patch["metadata"]) == {"resourceVersion"}
    assert set(patch["data"]) == {f"uid-{n}.0.0" for n in range(64)}
    assert (world.maps.gets, world.maps.lists) == gets
    assert len(world.maps.texts()) == 65


async def test_the_version_of_the_next_patch_comes_from_the_last_answer(world: World) -> None:
    proxy = await world.start()
    for number in range(4):
        await proxy.store.write(lambda draft, number=number: draft.put(entry(number)))  # type: ignore[misc]
    versions = [patch["metadata"]["resourceVersion"] for patch in world.maps.patches]
    assert versions == sorted(set(versions))
    assert world.maps.lists == 1
    assert world.maps.gets == 1


async def test_a_change_that_changes_nothing_is_not_written(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry()))
    version = world.maps.version
    await proxy.store.write(lambda draft: draft.put(entry()))
    await proxy.store.write(lambda _: None)
    assert world.maps.version == version


async def test_a_conflict_means_read_again_and_decide_again(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry(0)))
    world.maps.edit(NAME, **{"uid-1.0.0": encode_entry(entry(1))})

    def take_if_free(draft: Draft) -> str:
        if "p-job-1-default-0" in draft.ids_in_use():
            return "taken"
        draft.put(entry(2, id="p-job-1-default-0"))
        return "mine"

    first = await proxy.store.write(lambda draft: draft.put(entry(3)))
    assert await proxy.store.write(take_if_free) == "taken"
    assert first.key in world.maps.texts()
    assert set(world.maps.texts()) == {"uid-0.0.0", "uid-1.0.0", "uid-3.0.0"}


async def test_a_write_whose_answer_is_lost_is_not_done_twice(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry(0)))

    async def lose() -> None:
        world.maps.on_write = None
        raise unreachable()

    world.maps.on_write = lose

    def reserve(draft: Draft) -> str:
        if draft.newest(("uid-1", 0)) is not None:
            return "there already"
        draft.put(entry(1))
        return "new"

    assert await proxy.store.write(reserve) == "there already"
    assert set(world.maps.texts()) == {"uid-0.0.0", "uid-1.0.0"}


async def test_a_change_that_is_refused_does_not_disturb_the_others(world: World) -> None:
    proxy = await world.start()

    def refuse(_: Draft) -> None:
        raise Contradiction("no")

    results = await asyncio.gather(
        proxy.store.write(lambda draft: draft.put(entry(0))),
        proxy.store.write(refuse),
        proxy.store.write(lambda draft: draft.put(entry(1))),
        return_exceptions=True,
    )
    assert isinstance(results[1], Contradiction)
    assert set(world.maps.texts()) == {"uid-0.0.0", "uid-1.0.0"}


async def test_a_full_map_is_followed_by_a_numbered_one_with_the_same_label(
    world: World,
) -> None:
    proxy = await world.start()
    for start in range(0, 250, 50):

        def put(draft: Draft, start: int = start) -> None:
            for number in range(start, start + 50):
                draft.put(entry(number, message="x" * 400))

        await proxy.store.write(put)
    assert sorted(world.maps.objects) == [NAME, f"{NAME}-1", f"{NAME}-2"]
    for one in world.maps.objects.values():
        size = sum(len(k.encode()) + len(v.encode()) for k, v in one["data"].items())
        assert size <= MAX_SHARD_BYTES <= 64 * 1024
        assert one["metadata"]["labels"] == {LABEL: NAME}
    async with world.process() as next_process:
        assert len(next_process.store.tracker.entries) == 250


async def test_entries_that_grow_to_their_limit_do_not_overflow_their_map(world: World) -> None:
    proxy = await world.start()

    def put(message: str) -> object:
        def change(draft: Draft) -> None:
            for number in range(150):
                draft.put(entry(number, message=message))

        return change

    await proxy.store.write(put(""))  # type: ignore[arg-type]
    homes = {key: name for name, one in world.maps.objects.items() for key in one["data"]}
    await proxy.store.write(put("ü" * 1000))  # type: ignore[arg-type]
    for name, one in world.maps.objects.items():
        size = sum(len(k.encode()) + len(v.encode()) for k, v in one["data"].items())
        assert size <= MAX_SHARD_BYTES
        assert all(homes[key] == name for key in one["data"])


async def test_a_map_without_our_label_is_taken_over_with_what_it_holds(world: World) -> None:
    world.maps.objects[NAME] = {
        "metadata": {"name": NAME, "resourceVersion": "7"},
        "data": {"uid-0.0.0": encode_entry(entry()), "old-format": "beb81bbe: p-x"},
    }
    proxy = await world.start()
    assert list(proxy.store.tracker.entries) == ["uid-0.0.0"]
    assert world.maps.objects[NAME]["metadata"]["labels"] == {LABEL: NAME}
    await proxy.store.write(lambda draft: draft.put(entry(1)))
    assert world.maps.objects[NAME]["data"]["old-format"] == "beb81bbe: p-x"


async def test_a_value_that_nobody_can_read_stays_as_it_is(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry()))
    world.maps.edit(NAME, **{"uid-9.0.0": "not json"})
    await proxy.store.refresh()
    await proxy.store.write(lambda draft: draft.put(entry(1)))
    assert proxy.store.tracker.unreadable == {"uid-9.0.0"}
    assert world.maps.texts()["uid-9.0.0"] == "not json"


async def test_a_map_that_somebody_deleted_is_written_again(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry(0)))
    del world.maps.objects[NAME]
    await proxy.store.write(lambda draft: draft.put(entry(1)))
    assert set(world.maps.texts()) == {"uid-0.0.0", "uid-1.0.0"}
    del world.maps.objects[NAME]
    await proxy.store.refresh()
    assert set(world.maps.texts()) == {"uid-0.0.0", "uid-1.0.0"}


async def test_a_caller_that_gave_up_before_the_write_gets_nothing_written(world: World) -> None:
    world.patience_seconds = 0.5
    proxy = await world.start()
    world.maps.down = unreachable()
    with pytest.raises(TrackerUnavailable):
        await proxy.store.write(lambda draft: draft.put(entry(0)))
    world.maps.down = None
    await proxy.store.write(lambda draft: draft.put(entry(1)))
    assert set(world.maps.texts()) == {"uid-1.0.0"}


async def test_the_values_are_readable_json(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry()))
    found = json.loads(world.maps.texts()["uid-0.0.0"])
    assert found == {
        "namespace": "default",
        "name": "job-0",
        "attempt": 0,
        "id": "p-job-0-default-0",
        "size": 1,
        "phase": "reserving",
        "controller": "v1:8090",
        "label": "vipu-ctrl=v1",
        "reservedAt": "2026-11-21T08:00:00.000Z",
    }


async def test_the_writer_waits_as_long_as_the_api_server_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    wait = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if seconds:
            world.maps.down = None
        await wait(0)

    world.maps.down = TooManyRequests(429, "TooManyRequests", "slow down", retry_after=77.0)
    monkeypatch.setattr("partitions.proxy.trackerstore.asyncio.sleep", pause)
    proxy = await world.start()
    assert max(pauses) == 77.0
    assert proxy.store.problem == ""


async def test_a_writer_that_begins_anew_knows_nothing_of_before(world: World) -> None:
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry()))
    proxy.writer.cancel()
    await asyncio.gather(proxy.writer, return_exceptions=True)
    assert not proxy.store.is_read  # nor is it ready once it leads again, before it has read
    world.maps.objects.clear()  # by whoever wrote meanwhile
    proxy.writer = asyncio.create_task(proxy.store.run())
    await proxy.store.refresh()
    assert proxy.store.tracker.entries == {}
    assert world.maps.objects == {}
