"""Lives in which something is lost or in the way: nodes, room, namespaces, webhooks, names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.stories import STORIES, asked_for, ends_from, new_job, start_job, story

if TYPE_CHECKING:
    from tests.fakes.chaosworld import ChaosWorld

AGAIN = {"type": "OnFailure", "backOffLimit": 0}


def reason(world: ChaosWorld) -> str:
    """Return the reason of the job's current state."""
    conditions = world.status().get("conditions") or ()
    return next((c["reason"] for c in conditions if c["status"] == "True"), "")


def last_message(world: ChaosWorld) -> str:
    return str(world.status().get("lastMessage", ""))


@story("Completed", 2)
async def node_that_never_comes_back(world: ChaosWorld) -> None:
    """The next attempt waits for the last pod of this attempt, however long, and says so."""
    await start_job(world, new_job().with_spec(restartPolicy=AGAIN))
    made = asked_for(world)
    world.kube.lose_pod("sample-worker-1")
    await world.until(lambda: reason(world) == "PodsStuck", launcher_exit=None)
    assert asked_for(world) == made
    world.kube.force_delete_pod("sample-worker-1")
    await world.settle(launcher_exit=ends_from(1))


@story("Failed", 1)
async def node_that_never_comes_back_under_never(world: ChaosWorld) -> None:
    """The job fails at once; its IPUs stay its own until nothing can use them any more."""
    await start_job(world, new_job())
    world.kube.lose_pod("sample-worker-1")
    await world.until(lambda: world.state() == "Failed", launcher_exit=None)
    await world.run(20, launcher_exit=None)
    assert len(world.partitions.held()) == 1
    world.kube.force_delete_pod("sample-worker-1")
    await world.settle(launcher_exit=None)


@story(None)
async def deleted_while_a_node_is_lost(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.lose_pod("sample-worker-1")
    world.kube.delete_job("sample")
    waits = "waiting for pod sample-worker-1"
    await world.until(lambda: waits in last_message(world), launcher_exit=None)
    assert len(world.partitions.held()) == 1
    world.kube.force_delete_pod("sample-worker-1")
    await world.settle(launcher_exit=None)


@story("Completed", 1)
async def quota_that_leaves_no_room_for_a_while(world: ChaosWorld) -> None:
    world.kube.set_quota(1)
    world.kube.add_job(new_job().build())
    await world.until(lambda: reason(world) == "QuotaExceeded")
    assert world.state() in {"Pending", "Restarting"}  # the latter if its partition broke before
    world.kube.set_quota(None)
    await world.settle()


@story("Completed", 1)
async def quota_that_leaves_no_room_at_all(world: ChaosWorld) -> None:
    """It takes no IPUs before there is room for its pods."""
    world.kube.set_quota(0)
    world.kube.add_job(new_job().build())
    await world.until(lambda: reason(world) == "QuotaExceeded")
    await world.run(5)
    assert world.partitions.history == []
    world.kube.set_quota(None)
    await world.settle()


@story("Completed", 2)
async def no_node_for_its_pods(world: ChaosWorld) -> None:
    """It does not hold its IPUs forever, and comes again."""
    world.kube.is_full = True
    world.kube.add_job(new_job().build())
    await world.until(lambda: reason(world) == "StartBlocked")
    await world.until(lambda: not world.partitions.held())
    assert world.state() in {"Pending", "Restarting"}
    world.kube.is_full = False
    await world.settle()


@story(None)
async def namespace_deleted_while_running(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.end_namespace()
    await world.settle(launcher_exit=None)


@story(None)
async def namespace_deleted_while_restarting(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().with_spec(restartPolicy={"type": "OnFailure"}).build())
    await world.until(lambda: world.state() == "Restarting", launcher_exit=7)
    world.kube.end_namespace()
    await world.settle(launcher_exit=7)


@story(None)
async def namespace_deleted_while_it_waits_for_ipus(world: ChaosWorld) -> None:
    world.partitions.ipus = 2
    world.kube.add_job(new_job().build())
    await world.until(lambda: world.state() == "Pending")
    world.kube.end_namespace()
    await world.settle()


@story("Completed", 1)
async def webhooks_away_at_the_start(world: ChaosWorld) -> None:
    """Without its finalizer no job gets a partition."""
    world.kube.set_webhook_away(away=True)
    world.kube.add_job(new_job().build())
    await world.until(lambda: reason(world) == "WebhookUnavailable")
    assert world.partitions.held() == []
    world.kube.set_webhook_away(away=False)
    await world.settle()


@story(None)
async def webhooks_away_while_running(world: ChaosWorld) -> None:
    """Running jobs run to their end; only a deletion waits, and says for what."""
    await start_job(world, new_job())
    world.kube.set_webhook_away(away=True)
    await world.until(lambda: world.state() == "Completed")
    world.kube.delete_job("sample")
    await world.until(lambda: "failed calling webhook" in last_message(world))
    assert world.partitions.held() == []
    world.kube.set_webhook_away(away=False)
    await world.settle()


@story("Completed", 1)
async def name_taken_by_something_else(world: ChaosWorld) -> None:
    """It is left alone, and the job continues when it has gone."""
    world.kube.put_foreign("configmaps", "sample-launcher")
    world.kube.add_job(new_job().build())
    await world.until(lambda: reason(world) == "NameConflict")
    assert world.kube.pods() == []
    world.kube.remove_foreign("configmaps", "sample-launcher")
    await world.settle()


NAMES = {one.name: one for one in STORIES}
