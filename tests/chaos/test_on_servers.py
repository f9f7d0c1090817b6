"""Some of the lives on API servers: the embedded API, or the server of IPUHUB_TEST_KUBECONFIG."""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import AlreadyExists, ApiError, NotFound
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from jobs.ipujob.names import IPUJOBS
from tests.builders.documents import our_crd
from tests.chaos.losses import AGAIN, NAMES
from tests.chaos.stories import Story, check_end, check_rest, new_job, start_job
from tests.chaos.test_every_write import LATE_SECONDS
from tests.devcluster.conformance.servers import LoopThread
from tests.fakes.chaosworld import Faults, Rival
from tests.fakes.freeport import free_port
from tests.fakes.logcache import Feed
from tests.fakes.longform import IS_LONG
from tests.fakes.proxylab import Lab, prepare_cluster
from tests.fakes.serverkube import (
    NODE,
    Observer,
    ServerKube,
    Verbs,
    is_complete,
    make_namespace,
    make_node,
    remove,
)
from tests.fakes.serverworld import ServerWorld
from tests.fakes.waiting import eventually
from tests.fakes.wholeproxy import WholeProxy
from tests.fakes.wire import Mischief

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ipuhub.kube.credentials import ClusterConfig
    from tests.fakes.chaosworld import ChaosWorld

GIVEN = os.environ.get("IPUHUB_TEST_KUBECONFIG")
EVERY_LIFE = tuple(name for name in NAMES if "quota" not in name)
LIVES = (
    "success",
    "on_failure_until_it_succeeds",
    "partition_under_onfailure",
    "worker_deleted_under_onfailure",
    "suspended_and_resumed",
    "scaled_down_and_up",
    "ended_by_its_deadline",
    "deleted_while_running",
)
LOSSES = (
    "node_that_never_comes_back",
    "deleted_while_a_node_is_lost",
    "namespace_deleted_while_running",
    "namespace_deleted_while_restarting",
    "webhooks_away_at_the_start",
    "webhooks_away_while_running",
    "name_taken_by_something_else",
    *(("quota_that_leaves_no_room_for_a_while",) if GIVEN else ()),  # the embedded API counts none
)
WITH_PROXY = ("success", "on_failure_until_it_succeeds")
LOSSES_WITH_PROXY = (
    "node_that_never_comes_back",
    "namespace_deleted_while_running",
    *(("deleted_while_a_node_is_lost", "namespace_deleted_while_restarting") if GIVEN else ()),
)
PLURALS = {"ipujobs", "pods"}
# On the embedded API, where all tests wait for these, fewer of all; `.ci/run` has a real server.
SEEDS = 8 if IS_LONG else 1
LOST_EVENTS = 8 if IS_LONG else 2 if GIVEN else 1  # of a life
DEATHS = (1, 2) if IS_LONG or GIVEN else (1.5,)  # thirds of a life's writes
# Of the writes after which a process dies: each of them, or every so many.
STRIDE = 1 if IS_LONG else 6 if GIVEN else 20
PROXY_STRIDE = 1 if IS_LONG else 9 if GIVEN else 24  # such a run takes twice the time
OWN_STRIDE = 1 if IS_LONG else 3 if GIVEN else 6  # the proxy's own
STORIES = [NAMES[name] for name in (EVERY_LIFE if IS_LONG else LIVES)]
# Of the four faults that come to these, two to each life on the embedded API: in memory all come
# to all lives, and `.ci/run` has a real server.
EVEN, ODD = (STORIES, STORIES) if IS_LONG or GIVEN else (STORIES[::2], STORIES[1::2])


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An API server whose pods only the world runs."""
    if GIVEN:
        yield GIVEN
        return
    thread = LoopThread()
    cluster = DevCluster(tmp_path_factory.mktemp("chaos") / "cluster")
    thread.run(cluster.start())
    try:
        yield str(cluster.kubeconfig)
    finally:
        thread.run(cluster.stop())
        thread.close()


@pytest.fixture(scope="module")
def client(kubeconfig: str) -> Iterator[Verbs]:
    """The client with which users, the scheduler and the kubelet write."""
    with Verbs(load_config(kubeconfig)) as made:
        with contextlib.suppress(AlreadyExists):
            made.create(CUSTOM_RESOURCE_DEFINITIONS, our_crd())
        yield made
        with contextlib.suppress(NotFound):
            made.delete(NODES, NODE)


@dataclass
class Stage:
    """Tells stories on one server, each in a namespace of its own."""

    kubeconfig: str
    config: ClusterConfig  # one for all operators: certificates are read once
    client: Verbs
    observer: Observer
    watching: KubeClient

    async def tell(self, story: Story, faults: Faults) -> ServerWorld:
        """From the beginning to the end, and until nothing is left of it."""
        kube = await self._open()
        world = ServerWorld(kube, self.observer, self.config, faults)
        await self._tell(world, story)
        return world

    async def tell_with_proxy(self, story: Story, faults: Faults) -> tuple[ServerWorld, WholeProxy]:
        """The same with a whole V-IPU Proxy and a vipu-server, both new."""
        kube = await self._open()
        with TemporaryDirectory() as storage:
            tracker, port = f"chaos-tracker-{uuid4().hex[:8]}", free_port()
            lab = Lab(self.kubeconfig, self.watching, Path(storage) / "vipu.json", port, tracker)
            proxy = WholeProxy(lab, kube, faults.proxy_kill_at)
            await proxy.start()
            try:
                world = ServerWorld(kube, self.observer, self.config, faults, proxy)
                await self._tell(world, story)
            finally:
                await proxy.close()
        return world, proxy

    async def _open(self) -> ServerKube:
        """A namespace in which pods can be made."""
        namespace = f"chaos-{uuid4().hex[:8]}"
        make_node(self.client)
        make_namespace(self.client, namespace)
        await eventually(lambda: is_complete(self.client, namespace))
        return ServerKube(self.client, namespace)

    async def _tell(self, world: ServerWorld, story: Story) -> None:
        faults = world.faults
        try:
            await story.tell(world)
            if faults.mischief is not None:
                faults.mischief.share = 0.0
                await world.settle()
            check_end(world, story)
            await world.compare()
            await check_rest(world)
            await world.clear()
            await world.compare()
            world.judge()
        finally:
            await world.close()
            remove(self.client, world.kube.namespace)


@pytest.fixture
async def stage(kubeconfig: str, client: Verbs) -> AsyncIterator[Stage]:
    config = load_config(kubeconfig)
    async with KubeClient(config) as watching:
        await eventually(lambda: is_served(client))
        observer = Observer(watching)
        await observer.start()
        yield Stage(kubeconfig, config, client, observer, watching)
        await observer.stop()


def is_served(client: Verbs) -> bool:
    try:
        client.list(IPUJOBS)
    except ApiError:
        return False
    return True


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", EVEN, ids=lambda story: story.name)
async def test_every_write_may_be_the_last(stage: Stage, story: Story) -> None:
    for write in count(1 + STORIES.index(story) % STRIDE, STRIDE):
        late = (0.0, LATE_SECONDS)[write // STRIDE % 2]
        world = await stage.tell(story, Faults(kill_at=write, downtime=late))
        if world.writes < write:
            break  # it has outlived its story: on a busy machine that takes some writes more
    assert write > 3


@pytest.fixture
async def guarded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage on which a whole proxy finds its node and its account."""
    await prepare_cluster(stage.watching)
    # A dead proxy answers nobody: its calls that hang are not waited for.
    monkeypatch.setattr("partitions.proxy.process._SHUTDOWN_SECONDS", 0.01)
    return stage


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WITH_PROXY)
async def test_every_write_may_be_the_last_beside_a_whole_proxy(guarded: Stage, name: str) -> None:
    for write in count(1, PROXY_STRIDE):
        world, _ = await guarded.tell_with_proxy(NAMES[name], Faults(kill_at=write))
        if world.writes < write:
            break
    assert write > 3


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WITH_PROXY)
async def test_every_write_of_the_proxy_may_be_its_last(guarded: Stage, name: str) -> None:
    for write in count(1, OWN_STRIDE):
        _, proxy = await guarded.tell_with_proxy(NAMES[name], Faults(proxy_kill_at=write))
        if proxy.writes < write:
            break  # what it is asked twice, as its answer was late, it may write twice
        assert proxy.deaths == 1
    assert write > 5


@pytest.mark.parametrize("name", LOSSES)
async def test_what_is_lost_or_in_the_way(stage: Stage, name: str) -> None:
    calm = await stage.tell(NAMES[name], Faults())
    for share in DEATHS:  # and the operator dies in the middle of it
        await stage.tell(NAMES[name], Faults(kill_at=int(calm.writes * share / 3)))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LOSSES_WITH_PROXY)
async def test_what_is_lost_beside_a_whole_proxy(guarded: Stage, name: str) -> None:
    calm, proxy = await guarded.tell_with_proxy(NAMES[name], Faults())
    await guarded.tell_with_proxy(NAMES[name], Faults(kill_at=calm.writes // 2))
    # Of the proxy's writes the last writes give back what was lost.
    for write in range(1, proxy.writes) if IS_LONG else (proxy.writes - 2,):
        _, mortal = await guarded.tell_with_proxy(NAMES[name], Faults(proxy_kill_at=write))
        assert mortal.deaths == (mortal.writes >= write)


async def controller_that_refuses_for_a_while(world: ChaosWorld) -> None:
    """The controller gets one call for each announced pause."""
    partitions: WholeProxy = world.partitions
    partitions.refuse_creations(3)
    world.kube.add_job(new_job().with_spec(restartPolicy=AGAIN).build())
    await world.until(lambda: world.status().get("restartCount") == 3)
    assert partitions.creations == 3  # the fourth attempt is announced
    partitions.refuse_creations(0)
    await world.settle()
    assert partitions.creations == 4


async def partition_that_works_again(world: ChaosWorld) -> None:
    """The pause ends with the fault."""
    partitions: WholeProxy = world.partitions
    await start_job(world, new_job().with_spec(restartPolicy=AGAIN))
    broken = await partitions.break_partition("a cable is loose")
    await world.until(lambda: world.state() == "Restarting", launcher_exit=None)
    announced = world.status()["instances"][0]["restartAt"]
    await partitions.reset_by_hand(broken)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert f"{world.now:%Y-%m-%dT%H:%M:%SZ}" <= announced
    await world.settle()


OUT_OF_ORDER = (
    Story("controller_that_refuses_for_a_while", controller_that_refuses_for_a_while, "Completed"),
    Story("partition_that_works_again", partition_that_works_again, "Completed", 2),
)


@pytest.mark.parametrize("story", OUT_OF_ORDER, ids=lambda story: story.name)
async def test_a_whole_proxys_controller_may_be_out_of_order(guarded: Stage, story: Story) -> None:
    await guarded.tell_with_proxy(story, Faults())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", ODD, ids=lambda story: story.name)
async def test_events_may_be_lost(stage: Stage, story: Story) -> None:
    calm = await stage.tell(story, Faults())
    (operator,) = calm.replicas
    stride = max(1, operator.events // LOST_EVENTS)
    first = 0 if IS_LONG or GIVEN else STORIES.index(story) % stride
    for number in range(first, operator.events, stride):
        await stage.tell(story, Faults(feed=Feed(drop=number)))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", ODD, ids=lambda story: story.name)
async def test_a_fifth_of_all_calls_goes_wrong(stage: Stage, story: Story) -> None:
    for seed in range(SEEDS):
        chance = random.Random(f"{story.name} {seed}")
        is_killed = (seed + STORIES.index(story)) % 2
        kill_at = chance.randint(1, 12) if is_killed else None
        await stage.tell(story, Faults(mischief=Mischief(chance), kill_at=kill_at))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", EVEN, ids=lambda story: story.name)
async def test_two_operators_do_not_tread_on_each_other(stage: Stage, story: Story) -> None:
    for seed in range(SEEDS):
        chance = random.Random(f"{story.name} {seed}")
        blind_to = ("pods", "ipujobs")[(seed + STORIES.index(story)) % 2]
        blind = {blind_to: 40.0}  # longer than it leads
        late = blind | {name: chance.choice([0.0, 4.0, 14.0]) for name in PLURALS - blind.keys()}
        feed = Feed(lag=lambda plural, _now, late=late: late.get(plural, 0.0))
        rival = Rival(chance.choice([0.0, 4.0]), feed)
        await stage.tell(story, Faults(rival=rival))
