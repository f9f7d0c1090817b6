"""A whole V-IPU Proxy, which may die after any write, and a vipu-server, for worlds on servers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.partition import Phase
from partitions.errors import ProxyUnavailable
from partitions.proxy.process import ProxyProcess
from partitions.proxy.tracker import decode_entry
from partitions.proxy.trackerstore import LABEL
from partitions.vipu.client import VipuClient
from tests.fakes.proxylab import SYSTEM
from tests.fakes.vipu import let_ipu_fail
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ipuhub.partition import Partition
    from partitions.client import ProxyClient
    from partitions.proxy.lifecycle import TrackerEntry
    from tests.fakes.proxylab import Lab
    from tests.fakes.serverkube import ServerKube

    Call = Callable[..., Awaitable[Any]]
HOLDER = ("sample", 0)  # of every partition: these worlds have one job of one instance
ENDED = frozenset({"Succeeded", "Failed"})


class Blade:
    """Counts the writes of one proxy process, and is its death right after the `left`-th."""

    def __init__(self, left: int | None) -> None:
        self.left = left
        self.writes = 0
        self.fell = asyncio.Event()

    async def write(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """One write; of a dead process none takes effect, and the last write is never answered."""
        if not self.fell.is_set():
            answer = await act()
            self.writes += 1
            if self.writes != self.left:
                return answer
            self.fell.set()
        return await asyncio.Event().wait()


@dataclass
class _Running:
    """One proxy process, and how the operator reaches it."""

    process: ProxyProcess
    api: ProxyClient
    blade: Blade
    serving: AsyncExitStack


class WholeProxy:
    """The partitions of one world. `history` has what V-IPU has done, in its order; a proxy that
    dies (`kill_at`: after that write, from 1) has a successor at once."""

    def __init__(self, lab: Lab, kube: ServerKube, kill_at: int | None) -> None:
        self.history: list[tuple[str, str, int]] = []
        self.taken: list[str] = []  # what must never happen: partitions taken from living pods
        self.creations = 0  # refused creations too
        self.deaths = 0
        self._written = 0
        self._list = lab.storage.with_name("controllers")
        self._lab = lab
        self._kube = kube
        self._kill_at = kill_at
        self._present: _Running | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A vipu-server and a proxy that has read its tracker."""
        self.refuse_creations(0)
        self._lab.start_vipu()
        self._present = await self._begin(Blade(self._kill_at))
        self._watching = asyncio.create_task(self._replace_the_dead())

    async def close(self) -> None:
        """End both, and take the tracker away."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._present is not None:
            await self._end(self._present)
        await self._lab.stop_vipu()
        for one in self._maps():
            self._kube.client.delete(CONFIG_MAPS, one["metadata"]["name"], SYSTEM)

    @property
    def writes(self) -> int:
        """Of all proxies so far, to tracker and V-IPU."""
        return self._written + (self._present.blade.writes if self._present else 0)

    # --- what the operator asks ----------------------------------------------------------------

    async def list(self) -> Any:
        return await self._call(lambda api: api.list())

    async def ensure(self, **request: Any) -> Partition:
        found: Partition = await self._call(lambda api: api.ensure(**request))
        return found

    async def release(self, uid: str, instance: int) -> Partition | None:
        found: Partition | None = await self._call(lambda api: api.release(uid, instance))
        return found

    async def _call(self, ask: Callable[[ProxyClient], Awaitable[Any]]) -> Any:
        """The answer, unless the proxy dies before it."""
        proxy = self._present
        if proxy is None:
            raise ProxyUnavailable("connection refused")
        answer = asyncio.ensure_future(ask(proxy.api))
        death = asyncio.ensure_future(proxy.blade.fell.wait())
        try:
            await asyncio.wait({answer, death}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ProxyUnavailable("connection reset")
            return answer.result()
        finally:
            answer.cancel()
            death.cancel()

    # --- what becomes of the controller --------------------------------------------------------

    def refuse_creations(self, gcds: int) -> None:
        """It refuses them all where partitions are to have a number of GCDs that does not divide
        their IPUs; 0: no longer."""
        setting = f";gcds={gcds}" if gcds else ""
        self._list.write_text(f"{self._lab.options.controllers}{setting}")
        if self._present is not None:
            self._present.process.fleet.reload()

    async def break_partition(self, what: str) -> str:
        """An IPU of the partition that is held fails, and is mended at once: the partition stays in
        ERROR until a person resets it. Return its id, once the proxy has seen it."""
        assert self._lab.vipu is not None
        controller = self._lab.vipu.controller
        (held,) = self.held()
        ipu = let_ipu_fail(controller, held.id, what)
        controller.heal_ipu(ipu.agent, ipu.index)
        await eventually(self._swept, lambda phase: phase is not Phase.ACTIVE)
        return held.id

    async def reset_by_hand(self, partition: str) -> None:
        """A person does, and the proxy sees it."""
        async with VipuClient(f"127.0.0.1:{self._lab.vipu_port}") as vipu:
            await vipu.reset_partition(partition)
        await eventually(self._swept, lambda phase: phase is Phase.ACTIVE)

    async def _swept(self) -> Phase:
        """The phase of the partition after a sweep; the proxy's own next one is a minute away."""
        assert self._present is not None
        await self._present.process.sweep.once()
        (held,) = self.held()
        return Phase(held.phase)

    # --- what the world sees -------------------------------------------------------------------

    def tick(self) -> None:
        """It works in its own time."""

    @property
    def is_moving(self) -> bool:
        """Return whether a partition is being made or removed, or no leader is there to do it."""
        if self._present is None or self._present.blade.fell.is_set():
            return True
        records = self._present.process.service.records()
        return any(not Phase(one.phase).is_settled for one in records)

    def held(self) -> list[TrackerEntry]:
        """Return what the tracker's ConfigMaps hold."""
        data = [one.get("data") or {} for one in self._maps()]
        entries = [decode_entry(key, text) for each in data for key, text in each.items()]
        return [entry for entry in entries if entry.phase is not Phase.RELEASED]

    async def check(self) -> None:
        """Tracker and V-IPU agree, and nothing was taken from a pod that ran."""
        assert sorted(entry.id for entry in self.held()) == sorted(await self._lab.exists())
        assert self.taken == []

    def _maps(self) -> list[dict[str, Any]]:
        label = f"{LABEL}={self._lab.tracker}"
        return self._kube.client.list(CONFIG_MAPS, SYSTEM, label_selector=label).items

    # --- processes -----------------------------------------------------------------------------

    async def _begin(self, blade: Blade) -> _Running:
        process = ProxyProcess(replace(self._lab.options, port=0, controllers_path=str(self._list)))
        self._watch(process, blade)
        process.start()
        serving = AsyncExitStack()
        await serving.enter_async_context(process.listening())
        await eventually(lambda: not process.store.problem)
        return _Running(process, self._lab.operator(process), blade, serving)

    async def _end(self, proxy: _Running) -> None:
        await proxy.process.close()
        await proxy.serving.aclose()
        await proxy.api.close()

    async def _replace_the_dead(self) -> None:
        proxy = self._present
        assert proxy is not None
        await proxy.blade.fell.wait()
        self.deaths += 1
        self._written, self._present = proxy.blade.writes, None
        await self._end(proxy)
        self._present = await self._begin(Blade(None))

    def _watch(self, process: ProxyProcess, blade: Blade) -> None:
        """Has every write of a process pass the blade."""
        client: Any = process.client
        for verb in ("create", "patch"):
            setattr(client, verb, self._of_maps(getattr(client, verb), blade))
        vipu: Any = process.fleet.api(f"127.0.0.1:{self._lab.vipu_port}")
        for verb in ("create", "reset", "remove"):
            name = f"{verb}_partition"
            setattr(vipu, name, self._of_vipu(verb, getattr(vipu, name), blade))

    def _of_maps(self, write: Call, blade: Blade) -> Call:
        async def watched(resource: Any, *args: Any, **options: Any) -> Any:
            if resource is not CONFIG_MAPS:
                return await write(resource, *args, **options)
            return await blade.write(lambda: write(resource, *args, **options))

        return watched

    def _of_vipu(self, verb: str, write: Call, blade: Blade) -> Call:
        async def act(*args: Any) -> Any:
            answer = await write(*args)
            name = {"remove": "release"}.get(verb, verb)
            self.history.append((name, *HOLDER))
            return answer

        async def watched(*args: Any) -> Any:
            if verb == "create":
                self.creations += 1
            else:
                self._check_unused(verb)
            return await blade.write(lambda: act(*args))

        return watched

    def _check_unused(self, verb: str) -> None:
        for pod in self._kube.present_pods():
            if pod["status"].get("phase") not in ENDED:
                self.taken.append(f"{verb} under {pod['metadata']['name']}")
