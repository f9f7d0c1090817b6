"""64 writers of one tracker at once, each with a view that the others have made stale."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.client import KubeClient
from ipuhub.kube.errors import Conflict
from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.partition import Phase
from partitions.proxy.tracker import decode_entry, encode_entry
from partitions.proxy.trackerstore import LABEL, StoreOptions, TrackerStore
from tests.builders.trackerentries import entry
from tests.fakes.proxylab import SYSTEM
from tests.integration.proxy.conftest import World, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.resources import Manifest
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.tracker import Draft
    from tests.fakes.proxylab import Lab

WRITERS = 64
SHARED = entry(1000)  # everybody's: a count in the place of its attempt
STRANGERS = {
    "old-format": "beb81bbe: p-x",
    "uid-2000.0.0": "a person was here",
    entry(3000).key: encode_entry(entry(3000)),
}


@dataclass(frozen=True)
class Written:
    """The tracker's ConfigMap after one accepted write."""

    version: int
    writer: int
    data: dict[str, str]


@dataclass
class Ledger:
    """Every accepted write of the tracker's ConfigMap, and how many were refused."""

    written: list[Written] = field(default_factory=list)
    conflicts: int = 0

    def in_order(self) -> list[Written]:
        return sorted(self.written, key=lambda one: one.version)


class Noted(KubeClient):
    """The client of one writer; what it writes stands in the ledger."""

    def __init__(self, config: Any, number: int, ledger: Ledger) -> None:
        super().__init__(config, user_agent=f"writer-{number}", max_connections=1)
        self._number = number
        self._ledger = ledger

    async def patch(self, *given: Any, **options: Any) -> Manifest:
        try:
            answer = await super().patch(*given, **options)
        except Conflict:
            self._ledger.conflicts += 1
            raise
        version = int(answer["metadata"]["resourceVersion"])
        self._ledger.written.append(Written(version, self._number, answer["data"]))
        return answer


@asynccontextmanager
async def store_of(lab: Lab, number: int, ledger: Ledger) -> AsyncIterator[TrackerStore]:
    """The tracker as one proxy has it, with connections and a view of its own."""
    options = StoreOptions(namespace=SYSTEM, name=lab.tracker, patience_seconds=300)
    async with Noted(lab.client.config, number, ledger) as client:
        store = TrackerStore(client, options, lambda: math.inf)
        writing = asyncio.create_task(store.run())
        try:
            yield store
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


def left_over(number: int) -> TrackerEntry:
    """Return the entries that each eighth writer is to drop."""
    return entry(number, serial=-1)


DROPPING = range(0, WRITERS, 8)


BEFORE = {
    SHARED.key: encode_entry(SHARED),
    **STRANGERS,
    **{left_over(number).key: encode_entry(left_over(number)) for number in DROPPING},
}


async def fill(lab: Lab) -> None:
    """The tracker as all found it."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": lab.tracker, "labels": {LABEL: lab.tracker}},
        "data": BEFORE,
    }
    await lab.client.create(CONFIG_MAPS, body, SYSTEM)


def take_part(number: int, draft: Draft) -> int:
    """Add an entry, drop another, and count: no two writers may count from the same number."""
    draft.put(entry(number))
    draft.drop(left_over(number).key)
    count = draft.get(SHARED.key)
    assert count is not None
    return draft.put(replace(count, attempt=count.attempt + 1)).attempt


async def work(store: TrackerStore, number: int, all_have_read: asyncio.Barrier) -> int:
    await store.refresh()
    await all_have_read.wait()
    return await store.write(lambda draft: take_part(number, draft))


def check_each_writer_changed_its_own(ledger: Ledger) -> None:
    before = BEFORE
    for one in ledger.in_order():
        changed = {key for key, _ in before.items() ^ one.data.items()}
        own = {entry(one.writer).key}
        own |= {left_over(one.writer).key} if one.writer in DROPPING else set()
        assert changed == own | {SHARED.key}, one.writer
        before = one.data


@pytest.mark.timeout(600)
async def test_none_of_sixty_four_writers_loses_an_update_or_touches_anothers_entry(
    lab: Lab,
) -> None:
    ledger, all_have_read = Ledger(), asyncio.Barrier(WRITERS)
    await fill(lab)
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(store_of(lab, number, ledger))
            for number in range(WRITERS)
        ]
        counted = await asyncio.gather(
            *(work(store, number, all_have_read) for number, store in enumerate(stores))
        )

    stored = (await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM))["data"]
    own = {entry(number).key: entry(number) for number in range(WRITERS)}
    total = {SHARED.key: replace(SHARED, attempt=WRITERS)}
    assert {key: text for key, text in stored.items() if key in STRANGERS} == STRANGERS
    found = {key: decode_entry(key, text) for key, text in stored.items() if key not in STRANGERS}
    assert found == own | total
    assert sorted(counted) == list(range(1, WRITERS + 1))
    assert len(ledger.written) == WRITERS
    assert ledger.conflicts >= WRITERS - 1  # all but the first had a stale view
    check_each_writer_changed_its_own(ledger)


PROXIES = 4


async def test_proxies_with_stale_views_make_one_partition_for_each_of_sixty_four_jobs(
    lab: Lab,
) -> None:
    """Each job requests its partition from two of four proxies at once, as when the leader
    changes."""
    ledger, world = Ledger(), World(tracker=lab.tracker)
    world.vipu.machines = WRITERS // 4
    async with AsyncExitStack() as stack:
        proxies = []
        for number in range(PROXIES):
            client = Noted(lab.client.config, number, ledger)
            world.maps = await stack.enter_async_context(client)  # type: ignore[assignment]
            proxies.append(await stack.enter_async_context(world.process()))
        calls = [
            proxies[(number + other) % PROXIES].service.ensure(request(f"job-{number}", size=1))
            for number in range(WRITERS)
            for other in (0, 1)
        ]
        records = await asyncio.gather(*calls)
        assert {record.phase for record in records} == {"active"}
        for number in range(WRITERS):
            assert len({record.id for record in records[2 * number : 2 * number + 2]}) == 1

        stored = (await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM))["data"]
        entries = [decode_entry(key, text) for key, text in stored.items()]
        assert {one.phase for one in entries} == {Phase.ACTIVE}
        assert len(entries) == WRITERS
        assert {one.id for one in entries} == set(world.vipu.partitions)
        assert sorted(world.vipu.created) == sorted(world.vipu.partitions)  # none made twice
        assert ledger.conflicts

        await asyncio.gather(
            *(proxies[n % PROXIES].service.release(f"uid-job-{n}", 0) for n in range(WRITERS))
        )
        assert world.vipu.partitions == {}
