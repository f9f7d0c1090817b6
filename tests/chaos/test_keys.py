"""Lives of jobs on a secure V-IPU: the operator dies after any write, and no key stays valid."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from tests.chaos.stories import ends_from, new_job, start_job
from tests.fakes.chaosworld import ChaosWorld, Faults, Rival
from tests.fakes.logcache import Feed
from tests.fakes.wire import Mischief

if TYPE_CHECKING:
    from tests.chaos.stories import Tale

AGAIN = {"type": "OnFailure", "backOffLimit": 2}


async def completes(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().without_launcher().instances(2).workers(1).build())
    await world.settle(worker_exit=0)
    assert world.state() == "Completed"


async def restarts(world: ChaosWorld) -> None:
    await start_job(world, new_job().with_spec(restartPolicy=AGAIN))
    world.kube.evict_pod("sample-worker-0")
    await world.settle(launcher_exit=ends_from(1))
    assert world.state() == "Completed"


async def is_suspended_and_resumed(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.edit_job("sample", suspend=True)
    await world.settle(launcher_exit=None)
    assert world.partitions.valid_keys == {}
    world.kube.edit_job("sample", suspend=False)
    await world.settle()
    assert world.state() == "Completed"


async def is_deleted(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.delete_job("sample")
    await world.settle(launcher_exit=None)
    assert [place for place in world.kube.objects if place[0] != "namespaces"] == []


async def is_deleted_while_its_key_is_stored(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().build())
    await world.until(lambda: world.partitions.keys > 0)
    world.kube.delete_job("sample")
    await world.settle(launcher_exit=None)
    assert [place for place in world.kube.objects if place[0] != "namespaces"] == []


TALES = (
    completes,
    restarts,
    is_suspended_and_resumed,
    is_deleted,
    is_deleted_while_its_key_is_stored,
)


async def live_through(tale: Tale, faults: Faults) -> ChaosWorld:
    """A life under faults; at its end no key is valid, and each was in a Secret only."""
    world = ChaosWorld(faults)
    world.partitions.is_secure = True
    await tale(world)
    assert world.partitions.valid_keys == {}
    for (plural, *_), manifest in world.kube.objects.items():
        assert plural == "secrets" or "secret-0" not in json.dumps(manifest)
    return world


@pytest.mark.parametrize("tale", TALES)
async def test_a_job_gets_along_whatever_write_is_its_operators_last(tale: Tale) -> None:
    calm = await live_through(tale, Faults())
    assert calm.invariants.keys_used > 0 or tale is is_deleted_while_its_key_is_stored
    for write in range(1, calm.writes + 1):
        await live_through(tale, Faults(kill_at=write, downtime=(0.0, 40.0)[write % 2]))


@pytest.mark.parametrize("seed", range(4))
async def test_calls_that_fail_or_get_no_answer_cost_a_key_and_no_job(seed: int) -> None:
    for tale in (completes, restarts):
        await live_through(tale, Faults(mischief=Mischief(random.Random(seed))))


@pytest.mark.parametrize("since", [3.0, 5.0, 9.0])
async def test_of_two_operators_none_starts_pods_with_the_others_dead_key(since: float) -> None:
    await live_through(restarts, Faults(rival=Rival(since, Feed())))


async def test_a_job_on_an_insecure_controller_gets_no_secret_and_no_write_more() -> None:
    world = ChaosWorld(Faults())
    await restarts(world)
    assert "make_key" not in world.partitions.calls
    assert not [place for place in world.kube.objects if place[0] == "secrets"]
    assert not [kind for kind in world.kinds if "key" in kind or "secrets" in kind]


async def test_pods_on_a_controller_without_such_keys_start_without() -> None:
    world = ChaosWorld(Faults())
    world.partitions.is_secure, world.partitions.makes_keys = True, False
    await completes(world)
    assert world.invariants.keys_used == 0
    assert not [place for place in world.kube.objects if place[0] == "secrets"]


async def test_a_pod_that_is_made_again_before_the_start_gets_the_same_key() -> None:
    world = ChaosWorld(Faults())
    world.partitions.is_secure, world.kube.is_full = True, True
    world.kube.add_job(new_job().build())
    await world.until(lambda: len(world.kube.pods()) > 1)
    world.kube.force_delete_pod("sample-worker-0")
    await world.until(lambda: len(world.kube.pods()) == 3)
    assert world.partitions.keys == 1
    world.kube.is_full = False
    await world.settle()
    assert world.state() == "Completed"
