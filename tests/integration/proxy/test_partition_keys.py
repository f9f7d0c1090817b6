"""Keys by which the pods of a job reach their own partition: made, stored, and never left valid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import KEY_WANTED
from partitions.errors import Contradiction, ControllerUnavailable, StaleAttempt
from partitions.vipu.client import TlsFiles
from partitions.vipu.errors import NoAnswer
from tests.integration.proxy.conftest import World, request
from tests.integration.proxy.test_partition_crashes import run_until_death

if TYPE_CHECKING:
    from partitions.proxy.service import PartitionService
    from tests.integration.proxy.conftest import Site

FILES = TlsFiles(b"ca", b"certificate", b"private key")
UID = "uid-job"
PATH = f"/v1/partitions/{UID}/0/key"


@pytest.fixture(autouse=True)
def is_secure(world: World) -> None:
    world.vipu.pod_files = FILES


async def test_a_key_is_made_for_an_active_partition_and_stays_for_its_attempt(
    world: World,
) -> None:
    async with world.process() as proxy:
        made = await proxy.service.ensure(request())
        assert made.pod_key == KEY_WANTED
        key = await proxy.service.make_key(UID, 0, 0)
        assert key is not None
        assert (key.user_id, key.access_key) == ("partition/p-job-default-0", "key-1")
        assert (key.ca, key.certificate, key.private_key) == ("ca", "certificate", "private key")
        stored = await proxy.service.store_key(UID, 0, 0, key.id)
        assert (stored.phase, stored.pod_key) == ("active", key.id)
        assert await proxy.service.store_key(UID, 0, 0, key.id) == stored  # once more: the same
        with pytest.raises(Contradiction, match="they have a key already"):
            await proxy.service.make_key(UID, 0, 0)
    assert world.vipu.keys == 1


async def test_a_new_attempt_needs_a_new_key(world: World) -> None:
    async with world.process() as proxy:
        await proxy.service.ensure(request())
        key = await proxy.service.make_key(UID, 0, 0)
        assert key is not None
        await proxy.service.store_key(UID, 0, 0, key.id)
        again = await proxy.service.ensure(request(attempt=1))
        assert again.pod_key == KEY_WANTED
        with pytest.raises(StaleAttempt):
            await proxy.service.make_key(UID, 0, 0)
        with pytest.raises(StaleAttempt):
            await proxy.service.store_key(UID, 0, 0, "late")


async def test_only_the_key_that_was_made_last_can_be_stored(world: World) -> None:
    async with world.process() as proxy:
        await proxy.service.ensure(request())
        first = await proxy.service.make_key(UID, 0, 0)
        second = await proxy.service.make_key(UID, 0, 0)
        assert first is not None
        assert second is not None
        with pytest.raises(Contradiction, match="is not the last key made"):
            await proxy.service.store_key(UID, 0, 0, first.id)
    async with world.process() as successor:  # it cannot know whether a third was made
        with pytest.raises(Contradiction, match="is not the last key made"):
            await successor.service.store_key(UID, 0, 0, second.id)


async def test_nothing_of_a_key_is_in_the_tracker_or_the_log(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    async with world.process() as proxy:
        await proxy.service.ensure(request())
        key = await proxy.service.make_key(UID, 0, 0)
        assert key is not None
        await proxy.service.store_key(UID, 0, 0, key.id)
        assert key.access_key not in json.dumps(world.maps.texts())
        assert key.access_key not in f"{key}" + "".join(capfd.readouterr())


async def test_no_key_before_the_partition_is_active(world: World) -> None:
    world.vipu.polls, world.answer_seconds = 10**6, 0.01
    async with world.process() as proxy:
        await proxy.service.ensure(request())
        with pytest.raises(Contradiction, match="once it is active"):
            await proxy.service.make_key(UID, 0, 0)
    assert world.vipu.keys == 0


async def test_an_insecure_controller_costs_nothing_more(world: World) -> None:
    async def writes() -> int:
        before = world.maps.version
        async with world.process() as proxy:
            await proxy.service.ensure(request())
            await proxy.service.release(UID, 0)
        return world.maps.version - before

    secure = await writes()
    world.vipu.pod_files = None
    assert await writes() == secure
    async with world.process() as proxy:
        assert (await proxy.service.ensure(request())).pod_key == ""
        with pytest.raises(Contradiction, match="they need none"):
            await proxy.service.make_key(UID, 0, 0)
    assert "podKey" not in json.dumps(world.maps.texts())


async def test_pods_on_a_controller_without_such_keys_go_without(world: World) -> None:
    world.vipu.makes_keys = False
    async with world.process() as proxy:
        await proxy.service.ensure(request())
        assert await proxy.service.make_key(UID, 0, 0) is None
        assert proxy.service.find(UID, 0).pod_key == ""


async def test_a_silent_controller_is_asked_again(world: World) -> None:
    async with world.process() as proxy:
        await proxy.service.ensure(request())
        world.vipu.down = NoAnswer("v1:8090: no answer")
        with pytest.raises(ControllerUnavailable, match="no answer"):
            await proxy.service.make_key(UID, 0, 0)
        world.vipu.down = None
        assert await proxy.service.make_key(UID, 0, 0) is not None


async def make_and_store(service: PartitionService) -> None:
    await service.ensure(request())
    key = await service.make_key(UID, 0, 0)
    assert key is not None
    await service.store_key(UID, 0, 0, key.id)


@pytest.mark.parametrize("left", range(6))
async def test_whatever_write_is_the_last_the_next_process_comes_to_a_valid_key(left: int) -> None:
    world = World()
    world.vipu.pod_files = FILES
    await run_until_death(world, make_and_store, left)
    async with world.process() as proxy:
        found = await proxy.service.ensure(request())
        if found.pod_key == KEY_WANTED:
            key = await proxy.service.make_key(UID, 0, 0)
            assert key is not None
            found = await proxy.service.store_key(UID, 0, 0, key.id)
            assert world.vipu.partitions[found.id].key == key.access_key
        assert found.pod_key not in {"", KEY_WANTED}
        await proxy.service.release(UID, 0)
    assert not world.vipu.partitions  # and with each its key


async def test_keys_over_http(site: Site) -> None:
    await site.put()
    assert (await site.send("POST", PATH, json={"attempt": 0}))[0] == 401
    assert (await site.send("POST", PATH, user="prober", json={"attempt": 0}))[0] == 403
    status, text = await site.send("POST", PATH, user="operator", json={"attempt": 0})
    key = json.loads(text)["key"]
    assert (status, key["accessKey"]) == (200, "key-1")
    for body in ({"attempt": 0}, {"attempt": 0, "id": ""}, {"id": key["id"]}):
        assert (await site.send("PUT", PATH, user="operator", json=body))[0] == 400
    other = {"attempt": 0, "id": "other"}
    assert (await site.send("PUT", PATH, user="operator", json=other))[0] == 409
    stored = {"attempt": 0, "id": key["id"]}
    assert (await site.send("PUT", PATH, user="prober", json=stored))[0] == 403
    status, text = await site.send("PUT", PATH, user="operator", json=stored)
    assert (status, json.loads(text)["podKey"]) == (200, key["id"])
    site.world.vipu.down = NoAnswer("v1:8090: no answer")
    assert (await site.send("POST", PATH, user="operator", json={"attempt": 0}))[0] == 409
