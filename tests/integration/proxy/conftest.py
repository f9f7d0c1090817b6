"""A proxy over fakes with a clock by hand, and a lab where API server and V-IPU are real."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ipuhub.backoff import Backoff
from ipuhub.kube.access import User
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.process.connections import CountedSite
from ipuhub.process.health import Health, build_runner
from partitions.proxy.app import Access, Parts, build_app
from partitions.proxy.breaker import CircuitBreaker, Connection
from partitions.proxy.circuit import CircuitOptions
from partitions.proxy.controllers import PlacementRule
from partitions.proxy.fleet import Fleet, FleetOptions
from partitions.proxy.lifecycle import Request
from partitions.proxy.queue import QueueOptions
from partitions.proxy.service import PartitionService, ServiceOptions
from partitions.proxy.steps.driver import Pace
from partitions.proxy.sweep import Sweep, SweepOptions
from partitions.proxy.tracker import decode_entry
from partitions.proxy.trackerstore import StoreOptions, TrackerStore
from partitions.proxy.vipuapi import only_while_leading
from tests.fakes.configmaps import FakeConfigMaps
from tests.fakes.freeport import free_port
from tests.fakes.proxylab import SYSTEM, Lab, prepare_cluster, some_cluster
from tests.fakes.vipu import FakeVipu

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ipuhub.kube.errors import ApiError
    from partitions.proxy.lifecycle import TrackerEntry

FAST = Backoff(first_seconds=0.001, max_seconds=0.004)
AT_ONCE = Backoff(first_seconds=0.0, max_seconds=0.0)
START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
TWO = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"


def request(name: str = "job", **given: Any) -> Request:
    fields: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "default",
        "name": name,
        "instance": 0,
        "size": 4,
        "attempt": 0,
    }
    return Request(**fields | given)


@dataclass
class Lead:
    """The time for which a process surely leads, by its own clock."""

    left_seconds: float = math.inf


@dataclass
class Service:
    """One process of the proxy."""

    store: TrackerStore
    fleet: Fleet
    service: PartitionService
    sweep: Sweep
    writer: asyncio.Task[None]
    lead: Lead

    async def stop(self) -> None:
        self.writer.cancel()
        await asyncio.gather(self.writer, return_exceptions=True)
        await self.service.close()
        await self.fleet.close()


def lose_patience(proxy: Service) -> None:
    """Let a proxy that has read its tracker wait for the API server no longer."""
    object.__setattr__(proxy.store._options, "patience_seconds", 0.01)


@dataclass
class World:
    """All that outlives a process of the proxy: API server, V-IPU controllers, list, nodes,
    time."""

    maps: FakeConfigMaps = field(default_factory=FakeConfigMaps)
    published_only: bool = False
    vipus: dict[str, FakeVipu] = field(default_factory=dict)
    listed: str = "v1:8090:vipu-ctrl=v1"
    tracker: str = "ipu-partitions-tracker"
    unlabelled: set[str] = field(default_factory=set)
    now: datetime = START
    seconds: float = 1000.0
    rule: PlacementRule = PlacementRule.FIRST_FIT
    answer_seconds: float = 5.0
    pace: Pace = field(default_factory=lambda: Pace(poll=FAST, retry=FAST))
    patience_seconds: float = 5.0
    gather_seconds: float = 0.0
    at_once: int = 1
    sweep_options: SweepOptions = field(default_factory=SweepOptions)
    turns: QueueOptions = field(default_factory=QueueOptions)
    fleet_options: FleetOptions = field(default_factory=lambda: FleetOptions(topology_seconds=0))
    circuit: CircuitOptions = field(
        default_factory=lambda: CircuitOptions(pause=AT_ONCE, order_pause=AT_ONCE)
    )
    running: list[Service] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.add_vipu("v1:8090")

    def add_vipu(self, address: str, **given: Any) -> FakeVipu:
        """Have one more V-IPU controller; those that say little all do."""
        self.vipus[address] = FakeVipu(published_only=self.published_only, **given)
        return self.vipus[address]

    @property
    def vipu(self) -> FakeVipu:
        return self.vipus["v1:8090"]

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def entries(self) -> list[TrackerEntry]:
        return [decode_entry(key, text) for key, text in self.maps.texts().items()]

    def entry(self) -> TrackerEntry:
        (entry,) = self.entries()
        return entry

    def connect(self, address: str, lead: Lead) -> Connection:
        times = (lambda: self.seconds), (lambda: self.now)
        breaker = CircuitBreaker(address, *times, self.circuit)
        guarded = breaker.guard(self.vipus[address])
        return Connection(only_while_leading(guarded, lambda: lead.left_seconds), breaker)

    def build(self) -> Service:
        options = StoreOptions(
            namespace="ipuhub-system",
            name=self.tracker,
            patience_seconds=self.patience_seconds,
            gather_seconds=self.gather_seconds,
            at_once=self.at_once,
            backoff=FAST,
        )
        lead = Lead()
        store = TrackerStore(self.maps, options, lambda: lead.left_seconds)
        fleet = Fleet(
            connect=lambda address: self.connect(address, lead),
            read_list=lambda: self.listed,
            has_node=lambda label: label not in self.unlabelled,
            clock=lambda: self.seconds,
            options=self.fleet_options,
        )
        fleet.reload()
        service = PartitionService(
            store,
            fleet,
            lambda: self.now,
            ServiceOptions(
                answer_seconds=self.answer_seconds, rule=self.rule, pace=self.pace, queue=self.turns
            ),
        )
        sweep = Sweep(store, fleet, service, lambda: self.now, self.sweep_options)
        return Service(store, fleet, service, sweep, asyncio.create_task(store.run()), lead)

    async def start(self) -> Service:
        built = self.build()
        await built.store.refresh()
        self.running.append(built)
        return built

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Service]:
        built = await self.start()
        try:
            yield built
        finally:
            await built.stop()


@pytest.fixture(params=["told", "published"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """V-IPU controllers that say where each IPU stands, as ours, and others, which do not."""
    made = World(published_only=request.param == "published")
    yield made
    for service in made.running:
        await service.stop()


async def run_other_tasks(number: int = 50) -> None:
    """Let the other tasks go on as far as they can without time passing."""
    for _ in range(number):
        await asyncio.sleep(0)


class FakeReviews:
    """Tokens are user names; `rights` are (user, verb, namespace), "" for all namespaces."""

    def __init__(self) -> None:
        self.rights: set[tuple[str, str, str]] = set()
        self.down: ApiError | None = None
        self.resources: list[tuple[str, str, str]] = []

    async def authenticate(self, token: str) -> User | None:
        if self.down is not None:
            raise self.down
        return None if token == "invalid" else User(token)

    async def authorize(
        self,
        user: User,
        *,
        verb: str,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> bool:
        self.resources.append((group, resource, subresource))
        everywhere = (user.username, verb, "") in self.rights
        return everywhere or (user.username, verb, namespace) in self.rights


@dataclass
class Site:
    """A proxy that answers HTTP, over a world."""

    world: World
    proxy: Service
    reviews: FakeReviews
    health: Health
    url: str
    http: aiohttp.ClientSession

    async def get(self, path: str, **given: Any) -> tuple[int, str]:
        return await self.send("GET", path, **given)

    async def send(
        self, method: str, path: str, *, user: str = "", **given: Any
    ) -> tuple[int, str]:
        headers = dict(given.pop("headers", {}))
        if user:
            headers["Authorization"] = f"Bearer {user}"
        async with self.http.request(method, self.url + path, headers=headers, **given) as answer:
            return answer.status, await answer.text()

    async def put(self, name: str = "job", *, user: str = "operator", **given: Any) -> Any:
        wanted = request(name, **given)
        body = {
            "namespace": wanted.namespace,
            "name": wanted.name,
            "size": wanted.size,
            "attempt": wanted.attempt,
        }
        path = f"/v1/partitions/{wanted.uid}/{wanted.instance}"
        return await self.send("PUT", path, user=user, json=body)


@pytest.fixture
async def site(world: World) -> AsyncIterator[Site]:
    proxy = await world.start()
    reviews = FakeReviews()
    reviews.rights = {("operator", verb, "") for verb in ("get", "list", "update", "delete")}
    reviews.rights |= {("prober", verb, "") for verb in ("list", "acknowledge")}
    health = Health()
    parts = Parts(proxy.store, proxy.fleet, proxy.service, proxy.sweep, Access(reviews), health)
    runner = build_runner(build_app(parts))
    await runner.setup()
    await CountedSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as http:
        yield Site(world, proxy, reviews, health, url, http)
    await runner.cleanup()


@pytest.fixture
async def lab(tmp_path: Path, given_cluster: str) -> AsyncIterator[Lab]:
    tracker = f"tracker-{tmp_path.name.replace('_', '-')[-40:].strip('-').lower()}"
    async with AsyncExitStack() as stack:
        kubeconfig = await stack.enter_async_context(
            some_cluster(tmp_path / "cluster", given_cluster)
        )
        client = await stack.enter_async_context(KubeClient(load_config(kubeconfig)))
        await prepare_cluster(client)
        made = Lab(kubeconfig, client, tmp_path / "vipu.json", free_port(), tracker)
        made.start_vipu()
        yield made
        await made.stop_vipu()
        try:
            await client.delete(CONFIG_MAPS, tracker, SYSTEM)
        except NotFound:
            return
