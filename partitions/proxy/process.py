"""io: the V-IPU Proxy process: its parts, background tasks and shutdown."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from ipuhub.concurrency import end_tasks, run_endlessly
from ipuhub.kube.access import Reviewer
from ipuhub.kube.client import KubeClient
from ipuhub.process.health import build_runner, listening
from ipuhub.process.leaderlabel import LeaderLabel
from ipuhub.process.metricspage import metrics_route
from ipuhub.process.process import ClusterProcess
from ipuhub.process.runtime import stop_event
from ipuhub.times import utc_now
from partitions.errors import TrackerUnavailable
from partitions.proxy import metrics
from partitions.proxy.app import AUDIENCE, Access, Parts, build_app
from partitions.proxy.breaker import CircuitBreaker, Connection
from partitions.proxy.controllerlist import READ_SECONDS, ControllerList
from partitions.proxy.controllers import PartitionSettings, parse_controllers
from partitions.proxy.fleet import Fleet, FleetOptions
from partitions.proxy.metrics import PROXY
from partitions.proxy.nodes.advertising import Advertiser
from partitions.proxy.nodes.extender import Extender, allow_node_lists
from partitions.proxy.nodes.informer import NodeLabels
from partitions.proxy.service import PartitionService, ServiceOptions
from partitions.proxy.sweep import Sweep, SweepOptions
from partitions.proxy.trackerstore import StoreOptions, TrackerStore
from partitions.proxy.vipuapi import only_while_leading
from partitions.vipu.accessfiles import ControllerAccess, access_of
from partitions.vipu.client import VipuClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from ipuhub.kube.credentials import ClusterConfig
    from ipuhub.process.leadership import LeadershipOptions
    from partitions.proxy.nodes.advertising import VisibilityOptions
    from partitions.vipu.tlsfiles import ClientTls

log = structlog.get_logger(__name__)

_SHUTDOWN_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Everything that can be set; `controllers_path` takes precedence over `controllers`.

    Without `election` this is the only replica. Clients with `metrics_token`, and clients that the
    API server allows, may read /metrics. `finish_seconds`: how long a shutdown waits for partitions
    that are being created or removed. With `mutations_port` (0: any free port) `/v1` is served
    there only; None: on `port`. With `pod`, the name of its own pod in `namespace`, the leader
    labels it, and a standby is ready.
    """

    cluster: ClusterConfig
    namespace: str
    election: LeadershipOptions | None = None
    metrics_token: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    mutations_port: int | None = None
    tracker: str = "ipu-partitions-tracker"
    controllers: str = ""
    controllers_path: str = ""
    controllers_configmap: str = ""
    controllers_seconds: float = READ_SECONDS
    deadline_seconds: float = 10.0
    tls: ClientTls | None = None
    access_path: Path | None = None
    finish_seconds: float = 12.0
    defaults: PartitionSettings = field(default_factory=PartitionSettings)
    service: ServiceOptions = field(default_factory=ServiceOptions)
    sweep: SweepOptions = field(default_factory=SweepOptions)
    fleet: FleetOptions = field(default_factory=FleetOptions)
    visibility: VisibilityOptions | None = None
    pod: str = ""


class ProxyProcess(ClusterProcess):
    """All parts of one proxy; `loops` are its background tasks, `port` and
    `mutations_port` those in use.

    Only the replica that leads reads and writes the tracker and continues with partitions.
    """

    def __init__(self, options: ProxyOptions) -> None:
        # A list that is set directly cannot be mended while we run: refuse it at once.
        if not options.controllers_path:
            parse_controllers(options.controllers, options.defaults)
        super().__init__(KubeClient(options.cluster, user_agent="ipuhub-proxy"), PROXY)
        self.options = options
        self.port = options.port
        self.mutations_port = options.port
        self.loops: list[asyncio.Task[None]] = []
        self.elect(options.election)
        self.nodes = NodeLabels(self.client)
        self.store = TrackerStore(
            self.client,
            StoreOptions(namespace=options.namespace, name=options.tracker),
            lambda: self.leadership.left_seconds,
        )
        self.controllers = ControllerList(
            self.client,
            options.namespace,
            text=options.controllers,
            path=options.controllers_path,
            configmap=options.controllers_configmap,
        )
        self.fleet = Fleet(
            connect=self._connect,
            read_list=self.controllers.read,
            has_node=self.nodes.has,
            clock=time.monotonic,
            options=options.fleet,
            defaults=options.defaults,
        )
        self.service = PartitionService(self.store, self.fleet, utc_now, options.service)
        self.sweep = Sweep(self.store, self.fleet, self.service, utc_now, options.sweep)
        self.label: LeaderLabel | None = None
        if options.pod and options.election:
            place = (options.election.namespace, options.pod)
            self.label = LeaderLabel(self.client, *place, self.leadership)
        self.follow(lambda: {"nodes": self.nodes.informer})
        self.metrics.at_scrape(self._fill_metrics)
        self.health.ask("leader election", self._leadership_problem)
        self.health.ask("leader label", lambda: self.label.problem if self.label else "")
        self.health.ask("API server", self._tracker_problem)
        self.health.ask("nodes", lambda: self.nodes.problem)
        self.health.ask("V-IPU controllers", lambda: self.fleet.problem)

    def _connect(self, address: str) -> Connection:
        options = self.options
        access = access_of(address, options.access_path, ControllerAccess(options.tls))
        client = VipuClient(
            address,
            deadline_seconds=options.deadline_seconds,
            tls=access.tls,
            credentials=access.credentials,
            pod_tls=access.pod_tls,
        )
        breaker = CircuitBreaker(address, time.monotonic, utc_now)
        api = only_while_leading(breaker.guard(client), lambda: self.leadership.left_seconds)
        return Connection(api, breaker)

    def _fill_metrics(self) -> None:
        metrics.HELD_BACK.set(self.service.waiting.held_back(utc_now()))
        metrics.fill_fleet(self.fleet.last_views)
        metrics.fill_circuits(self.fleet.circuits())
        metrics.fill_drift(self.sweep.drift)
        metrics.fill_tracker(self.store.tracker if self.store.is_read else None)

    def start(self) -> None:
        """Start the loops that keep the proxy's picture of the world fresh."""
        self.fleet.reload()
        runs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "nodes": self.nodes.informer.run,
            "V-IPU controllers": self.fleet.run,
            "leadership": partial(self.leadership.lead, self._lead),
        }
        if self.controllers.is_followed:
            seconds = self.options.controllers_seconds
            runs["list of controllers"] = partial(self.controllers.run, seconds)
        if self.label is not None:
            runs["leader label"] = self.label.run
        self.loops = [asyncio.create_task(run_endlessly(name, run)) for name, run in runs.items()]

    async def _lead(self) -> None:
        """Write the tracker and sweep; both stop before another replica may hold the Lease."""
        runs = {
            "tracker": self.store.run,
            "sweep": self.sweep.run,
            "watch of the sweep": self.sweep.watch,
        }
        if self.options.visibility is not None:
            runs["IPU visibility"] = self._advertiser(self.options.visibility).run
        loops = [asyncio.create_task(run_endlessly(name, run)) for name, run in runs.items()]
        try:
            await asyncio.gather(*loops)
        finally:
            await end_tasks(*loops)
            await self.service.close()

    def _advertiser(self, options: VisibilityOptions) -> Advertiser:
        def say(problem: str) -> None:
            self.health.note("IPU visibility", problem)

        return Advertiser(self.nodes, self.fleet, self.client, options, say)

    def _leadership_problem(self) -> str:
        """Return why this replica is not Ready; a replica found by the label may be Ready without
        leading."""
        standby = "" if self.label else self.leadership.standby
        return self.leadership.problem or standby

    def _tracker_problem(self) -> str:
        return self.store.problem if self.leadership.is_leading else ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve HTTP; raises ListenError."""
        access = Access(Reviewer(self.client, AUDIENCE))
        working = (self.store, self.fleet, self.service, self.sweep)
        parts = Parts(*working, access, self.health, lambda: self.leadership.standby)
        guard = self.metrics_guard(self.options.metrics_token)
        extender = Extender(self.store, self.nodes.find)
        is_split = self.options.mutations_port is not None
        async with AsyncExitStack() as stack:

            async def serve_at(port: int, setting: str, *, is_open: bool) -> int:
                more = [metrics_route(self.metrics, guard), *extender.routes()]
                around = [metrics.count_requests, allow_node_lists]
                app = build_app(parts, more, around, is_open=is_open)
                runner = build_runner(app, shutdown_seconds=_SHUTDOWN_SECONDS)
                host = self.options.host
                return await stack.enter_async_context(listening(runner, host, port, setting))

            self.port = await serve_at(self.options.port, "", is_open=is_split)
            self.mutations_port = self.port
            if self.options.mutations_port is not None:
                setting = "IPUHUB_PROXY_MUTATIONS_PORT"
                port = self.options.mutations_port
                self.mutations_port = await serve_at(port, setting, is_open=False)
            ports = {"port": self.port} | (
                {"mutations_port": self.mutations_port} if is_split else {}
            )
            log.info("V-IPU Proxy listens", host=self.options.host, **ports)
            yield

    async def finish(self) -> None:
        """Take no more work and end what is under way, while the Lease is still ours; pages go on.

        What cannot be ended in time is left to the next leader, by its entry in the tracker.
        """
        self.health.set("end", ok=False, detail="this replica is shutting down")
        open_calls = await self.service.finish(self.options.finish_seconds)
        if open_calls:
            log.warning(
                "partitions left to the next leader in the middle of a phase", count=open_calls
            )
        # Stopped before the last write is waited for: a cancelled call writes nothing any more.
        await self.service.close()
        try:
            await self.store.finish()
        except TrackerUnavailable as error:
            log.warning("the tracker may lack the last changes", problem=str(error))

    async def close(self) -> None:
        """Stop where we are; the tracker says how to go on."""
        await end_tasks(*self.loops)
        await self.service.close()
        await self.fleet.close()
        await self.client.close()


@asynccontextmanager
async def running(options: ProxyOptions) -> AsyncIterator[ProxyProcess]:
    """A serving proxy; raises InvalidControllers or ListenError."""
    process = ProxyProcess(options)
    process.start()
    try:
        async with process.listening():
            yield process
    finally:
        await process.close()


async def serve(options: ProxyOptions) -> None:
    """Serve until SIGTERM or SIGINT; a loop that fails or returns ends it with an
    error that names the loop."""
    stop = stop_event()
    async with running(options) as process:
        stopped = asyncio.create_task(stop.wait())
        ends: set[asyncio.Task[Any]] = {stopped, *process.loops}
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        log.info("V-IPU Proxy stops")
        if stopped in done:
            await process.finish()
        stopped.cancel()
        for task in done:
            task.result()


async def sweep_once(options: ProxyOptions) -> None:
    """Compare tracker and controllers once, finish what is unfinished, and end.

    Raises LeaseHeld where another replica leads, ApiError where that is not to be known and
    LeadershipLost where it is lost meanwhile; TrackerUnavailable.
    """

    async def sweep() -> None:
        await process.sweep.once()
        await process.finish()

    async with _unserved(options) as process:
        await process.leadership.lead_now(sweep)


@asynccontextmanager
async def beside(options: ProxyOptions) -> AsyncIterator[ProxyProcess]:
    """A proxy without a server and a Lease, for a single read, or a single action of a person."""
    async with _unserved(replace(options, election=None)) as process:
        yield process


@asynccontextmanager
async def _unserved(options: ProxyOptions) -> AsyncIterator[ProxyProcess]:
    process = ProxyProcess(options)
    process.fleet.reload()
    process.loops = [asyncio.create_task(process.store.run())]
    try:
        yield process
    finally:
        await process.close()
