"""Steps that no pod waits for, such as the launcher's access; and passes that wait for V-IPU."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import structlog

from ipuhub.kube.errors import Forbidden
from ipuhub.kube.prioritygate import LowPriorityGate
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ACCESS = ["roles", "rolebindings"]


def slow_access(world: JobWorld) -> tuple[list[str], asyncio.Event]:
    """From now on roles and bindings are made after the event; the list has the requested
    objects."""
    plurals: list[str] = []
    may_answer = asyncio.Event()
    create = world.kube.create

    async def slow(resource: Any, body: Any) -> Any:
        if resource.plural in ACCESS:
            plurals.append(resource.plural)
            await may_answer.wait()
        return await create(resource, body)

    world.kube.create = slow  # type: ignore[method-assign]
    return plurals, may_answer


@contextlib.asynccontextmanager
async def at_work(world: JobWorld, concurrency: int) -> AsyncIterator[None]:
    """The operator's workers, which receive every change in the cluster at once."""
    bump = world.kube._bump  # where every change passes

    def heard(plural: str, manifest: Any, **options: Any) -> None:
        bump(plural, manifest, **options)
        on_job = plural == "ipujobs"
        on_change = world.controller.on_job if on_job else world.controller.on_child
        on_change(None, manifest)

    world.kube._bump = heard  # type: ignore[method-assign]
    await world.facts.poll(world.now)
    working = asyncio.create_task(world.controller.run(concurrency))
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def made(world: JobWorld) -> set[str]:
    return {plural for plural, _, _ in world.kube.objects}


async def test_pods_are_asked_for_together_and_before_the_launchers_access() -> None:
    world = JobWorld()
    plurals, may_answer = slow_access(world)
    pods: list[str] = []
    create, may_make = world.kube.create, asyncio.Event()

    async def slow(resource: Any, body: Any) -> Any:
        if resource.plural == "pods":
            pods.append(body["metadata"]["name"])
            await may_make.wait()
        return await create(resource, body)

    world.kube.create = slow  # type: ignore[method-assign]
    async with at_work(world, 2):
        world.controller.enqueue(world.kube.add_job(ipujob().workers(2).build()))
        await eventually(lambda: len(pods) == 3)
        assert plurals == []
        may_make.set()
        await eventually(lambda: plurals == ["roles"])
        assert len(world.kube.pods()) == 3
        may_answer.set()
        await eventually(lambda: made(world) >= {*ACCESS})


async def test_a_job_runs_while_its_launchers_access_is_still_being_made() -> None:
    world = JobWorld()
    plurals, may_answer = slow_access(world)
    async with at_work(world, 2):
        world.controller.enqueue(world.kube.add_job(ipujob().workers(2).build()))
        await eventually(lambda: len(world.kube.pods()) == 3)

        def runs() -> bool:
            world.kube.tick(launcher_exit=None)
            return world.state() == "Running"

        await eventually(runs)
        assert plurals == ["roles"]  # once, whatever has happened since
        assert not made(world) & {*ACCESS}
        may_answer.set()
        await eventually(lambda: made(world) >= {*ACCESS})
    assert plurals == ACCESS


def hold(calls: Any, verb: str, name: str) -> tuple[list[str], asyncio.Event]:
    """From now on calls about an object of this name wait for the event; the list has them."""
    held: list[str] = []
    go_on, call = asyncio.Event(), getattr(calls, verb)

    async def slow(*args: Any, **options: Any) -> Any:
        if name in str((args, options)):
            held.append(name)
            await go_on.wait()
        return await call(*args, **options)

    setattr(calls, verb, slow)
    return held, go_on


async def test_access_waits_while_pods_of_other_jobs_are_made() -> None:
    world = JobWorld()
    held, go_on = hold(world.kube, "create", "lagging-worker-0")
    async with at_work(world, 4):
        world.controller.enqueue(world.kube.add_job(ipujob("lagging").build()))
        await eventually(lambda: held)
        world.controller.enqueue(world.kube.add_job(ipujob("early").build()))
        await eventually(lambda: len(world.kube.pods()) == 2)  # the early job has its pods
        for _ in range(50):
            await asyncio.sleep(0)
        assert not made(world) & {*ACCESS}
        go_on.set()
        await eventually(lambda: made(world) >= {*ACCESS})


async def test_access_waits_neither_for_v_ipu_nor_for_ever() -> None:
    for patience, calls, verb in ((3600.0, "partitions", "ensure"), (0.0, "kube", "create")):
        world = JobWorld()
        world.controller.gate = world.controller.beside.gate = LowPriorityGate(patience)
        held, _ = hold(getattr(world, calls), verb, "lagging")
        async with at_work(world, 4):
            world.controller.enqueue(world.kube.add_job(ipujob("lagging").build()))
            await eventually(lambda held=held: held)
            world.controller.enqueue(world.kube.add_job(ipujob("early").build()))
            await eventually(lambda world=world: made(world) >= {*ACCESS})


async def test_access_that_is_refused_is_told_and_tried_again_less_and_less_often() -> None:
    world = JobWorld()
    no = Forbidden(403, "Forbidden", "not yours to grant")
    world.kube.faults["create", "roles"] = [no] * 4
    world.kube.add_job(ipujob().build())
    with structlog.testing.capture_logs() as logged:
        await world.passes(3)
        assert len(world.kube.pods()) == 2
        assert world.condition()["reason"] == "CreateFailed"
        assert "not yours to grant" in world.condition()["message"]
        await world.until(lambda: made(world) >= {*ACCESS}, launcher_exit=None)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert list(world.controller.faults()) == []
    refusals = [entry for entry in logged if entry["event"] == "rejected, retrying"]
    assert [entry["why"] for entry in refusals] == ["CreateChild: not yours to grant"]
    assert world.controller.later.retries == 4
    assert world.controller.later.failing == 0


async def test_what_a_plan_does_not_have_any_more_is_not_tried_again() -> None:
    world = JobWorld()
    world.kube.faults["create", "roles"] = [Forbidden(403, "Forbidden", "no")] * 1000
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Completed")
    await world.passes()
    tries = len(world.kube.faults["create", "roles"])
    await world.run(5)
    assert len(world.kube.faults["create", "roles"]) == tries
    assert list(world.controller.faults()) == []


async def test_who_waits_for_v_ipu_leaves_the_place_to_others() -> None:
    world = JobWorld()
    may_answer = asyncio.Event()
    ensure, names = world.partitions.ensure, list[str]()

    async def slow(**request: Any) -> Any:
        names.append(request["name"])
        if request["name"] != "last":
            await may_answer.wait()
        return await ensure(**request)

    world.partitions.ensure = slow  # type: ignore[method-assign]
    async with at_work(world, 1):
        for name in ("a", "b", "c", "last"):
            world.controller.enqueue(world.kube.add_job(ipujob(name).build()))
        await eventually(lambda: len(world.kube.pods()) == 2)
        assert names == ["a", "b", "c", "last"]
        assert {pod["metadata"]["name"][:4] for pod in world.kube.pods()} == {"last"}
        may_answer.set()
        await eventually(lambda: len(world.kube.pods()) == 8)
