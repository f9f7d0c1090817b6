"""SIGTERM during a call to V-IPU: the proxy waits for the call, records the result and begins
nothing new. The call is held open inside an otherwise normal vipu-server."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.errors import ConfigError
from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.partition import Phase
from partitions.configured import configured
from partitions.errors import ProxyUnavailable
from partitions.proxy.fleet import FleetOptions
from partitions.proxy.process import running, serve
from partitions.proxy.sweep import Sweep
from partitions.proxy.tracker import decode_entry
from tests.fakes.freeport import free_port
from tests.fakes.proxylab import JOB, SYSTEM, read_path, ready
from tests.fakes.waiting import eventually
from tests.integration.proxy.test_proxy_election import as_replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from partitions.client import ProxyClient
    from partitions.proxy.drift import Drift
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.process import ProxyOptions
    from tests.fakes.proxylab import Lab

ENDS = "this replica is shutting down"
ID = "p-ipujob-sample-default-0"
MORE = {**JOB, "uid": "another", "name": "another"}


@dataclass
class Watched:
    """The calls that change something at a vipu-server, in their order, and a call that is held.

    With `stop_clock` what is being created there is ACTIVE after `let_it_get_ready`, not before.
    """

    server: Any
    calls: list[str] = field(default_factory=list)
    entered: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)
    held: str = ""
    passed: int = 0  # calls of the held name that are not held
    elapsed: timedelta = timedelta()

    def __post_init__(self) -> None:
        for name in ("create", "reset", "remove", "get", "list"):
            setattr(self.server, name, self._around(name, getattr(self.server, name)))

    def hold(self, name: str, *, passed: int = 0) -> None:
        self.held, self.passed = name, passed

    def stop_clock(self) -> None:
        stopped = self.server.clock()
        self.server.clock = lambda: stopped + self.elapsed

    def let_it_get_ready(self) -> None:
        self.elapsed = timedelta(minutes=1)

    def _around(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **options: Any) -> Any:
            if name in {"create", "reset", "remove"}:
                self.calls.append(name)
            if name == self.held:
                self.passed -= 1
                if self.passed < 0:
                    self.entered.set()
                    self.gate.wait(60)
            return act(*given, **options)

        return watched


@dataclass
class Served:
    """A proxy as the command runs it."""

    port: int
    task: asyncio.Task[None]

    async def asked_to_end(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(self._says_so)

    async def _says_so(self) -> bool:
        status, body = await read_path(self, "/readyz")
        return status == 503 and ENDS in body


@asynccontextmanager
async def serving(options: ProxyOptions) -> AsyncIterator[Served]:
    """A proxy whose first sweep is over: a test holds a call that it asked for, not the sweep's."""
    port, swept = free_port(), asyncio.Event()
    sweep_once = Sweep.once

    async def once(sweep: Sweep) -> Drift:
        drift = await sweep_once(sweep)
        swept.set()
        return drift

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweep, "once", once)
        task = asyncio.create_task(serve(replace(options, port=port)))
        served = Served(port, task)

        async def answers() -> bool:
            try:
                return await ready(served)
            except OSError:
                return False

        await eventually(answers)
        await asyncio.wait_for(swept.wait(), 30)
    try:
        yield served
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def vipu(lab: Lab) -> Iterator[Watched]:
    assert lab.vipu is not None
    watched = Watched(lab.vipu.controller)
    yield watched
    watched.gate.set()


def patient(lab: Lab) -> ProxyOptions:
    # No look of the proxy's own at the controller: a test holds the call that it asked for.
    return replace(lab.options, deadline_seconds=10.0, fleet=FleetOptions(watch_seconds=600))


async def tracked(lab: Lab) -> TrackerEntry:
    stored = await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM)
    ((key, text),) = stored["data"].items()
    return decode_entry(key, text)


async def ensure(operator: ProxyClient) -> Any:
    return await operator.ensure(**JOB)


async def release(operator: ProxyClient) -> Any:
    return await operator.release(JOB["uid"], JOB["instance"])


@dataclass(frozen=True)
class Case:
    """The calls that are held and the state that has to be left: `passed` calls of that name are
    not held, and with `is_ready` the partition is ACTIVE when the held one answers."""

    held: str
    phase: Phase
    calls: tuple[str, ...] = ("create",)
    passed: int = 0
    is_ready: bool = False


ENDED = {
    "reserve": Case("list", Phase.CREATING),
    "create": Case("create", Phase.CREATING),
    "first look, too early": Case("get", Phase.CREATING),
    "first look": Case("get", Phase.ACTIVE, is_ready=True),
    "activate": Case("get", Phase.ACTIVE, passed=1, is_ready=True),
    "release": Case("remove", Phase.RELEASED, ("create", "remove")),
}


@pytest.mark.parametrize("case", ENDED.values(), ids=ENDED.keys())
async def test_what_is_under_way_at_sigterm_ends_its_phase_and_is_written_down(
    lab: Lab, vipu: Watched, case: Case
) -> None:
    is_release = case.phase is Phase.RELEASED
    want_ids = [] if is_release else [ID]
    async with serving(patient(lab)) as proxy, lab.operator(proxy) as operator:
        if is_release:
            await ensure(operator)
        vipu.stop_clock()
        vipu.hold(case.held, passed=case.passed)
        call = asyncio.create_task(release(operator) if is_release else ensure(operator))
        await asyncio.to_thread(vipu.entered.wait, 30)
        await proxy.asked_to_end()
        with pytest.raises(ProxyUnavailable, match=ENDS):
            await operator.ensure(**MORE)
        if case.is_ready:
            vipu.let_it_get_ready()
        vipu.gate.set()
        await asyncio.wait_for(proxy.task, 30)
        await asyncio.gather(call, return_exceptions=True)
    left = await tracked(lab)
    assert (left.phase, left.id, left.reason) == (case.phase, ID, "")
    assert await lab.exists() == want_ids
    assert vipu.calls == [*case.calls]

    vipu.let_it_get_ready()
    async with running(lab.options) as successor:
        await eventually(lambda: not successor.store.problem)
        records = successor.service.records
        await eventually(lambda: all(Phase(one.phase).is_settled for one in records()))
    after = await tracked(lab)
    assert after.phase is (Phase.RELEASED if is_release else Phase.ACTIVE)
    assert await lab.exists() == want_ids
    assert vipu.calls == [*case.calls]  # nothing had to be repaired


async def test_the_next_leader_begins_when_the_last_call_is_written_down(
    lab: Lab, vipu: Watched
) -> None:
    async with AsyncExitStack() as stack:
        first_options = replace(as_replica(lab, "a"), deadline_seconds=10.0)
        first = await stack.enter_async_context(serving(first_options))
        second = await stack.enter_async_context(running(as_replica(lab, "b")))
        await eventually(lambda: second.leadership.holder == "a")
        operator = await stack.enter_async_context(lab.operator(first))
        vipu.hold("create")
        call = asyncio.create_task(ensure(operator))
        await asyncio.to_thread(vipu.entered.wait, 30)
        await first.asked_to_end()
        assert (await call).phase == "reserving"  # no request is there any more to be waited for
        assert not second.leadership.is_leading
        assert (await tracked(lab)).phase is Phase.RESERVING
        vipu.gate.set()
        await eventually(lambda: ready(second))
        found = await eventually(second.service.records)
        assert [one.id for one in found] == [ID]
        await asyncio.wait_for(first.task, 30)
        await eventually(lambda: second.service.records()[0].phase == "active")
    assert vipu.calls == ["create"]
    assert await lab.exists() == [ID]


async def test_a_call_that_does_not_end_is_left_to_the_next_leader(lab: Lab, vipu: Watched) -> None:
    options = replace(patient(lab), finish_seconds=0.3)
    async with serving(options) as proxy, lab.operator(proxy) as operator:
        vipu.hold("create")
        call = asyncio.create_task(ensure(operator))
        await asyncio.to_thread(vipu.entered.wait, 30)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(proxy.task, 20)
        await asyncio.gather(call, return_exceptions=True)
    assert (await tracked(lab)).phase is Phase.RESERVING
    vipu.held = ""
    vipu.gate.set()  # V-IPU goes on with what nobody waits for any more
    await eventually(lab.exists)
    async with running(lab.options) as successor:
        await eventually(lambda: not successor.store.problem)
        await eventually(lambda: successor.service.records()[0].phase == "active")
    assert await lab.exists() == [ID]
    assert vipu.calls == ["create", "reset"]


async def test_a_controller_that_is_away_does_not_keep_the_process(lab: Lab) -> None:
    async with serving(lab.options) as proxy, lab.operator(proxy) as operator:
        await ensure(operator)
        await lab.stop_vipu()
        record = await release(operator)
        assert record is not None
        assert record.phase == "releasing"
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(proxy.task, 10)  # before the 12 s for what is under way are over
    assert (await tracked(lab)).phase is Phase.RELEASING
    lab.start_vipu()
    async with running(lab.options) as successor:
        await eventually(lambda: not successor.store.problem)
        await eventually(lambda: successor.service.records()[0].phase == "released")
    assert await lab.exists() == []


def test_a_time_that_does_not_fit_into_the_end_is_refused(settings: Any) -> None:
    settings.PROXY_FINISH_SECONDS = 25.0
    with pytest.raises(ConfigError, match="IPUHUB_PROXY_FINISH_SECONDS=25: use at most 20"):
        configured("127.0.0.1", 0)
