"""kill -9 at random moments: nothing that was acknowledged is lost, no version comes back."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from devcluster.server import DevCluster, DevClusterError
from devcluster.status import StatusError
from devcluster.storage.store import Store
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CMS = "/api/v1/namespaces/default/configmaps"
SERVE = Path(__file__).with_name("serve_until_killed.py")
ROUNDS = 4


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVE),
        str(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 90)).decode().strip()
        yield process, Path(line)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Writer:
    """Endless writes, and the acknowledged ones: name -> resourceVersion or None."""

    def __init__(self, seed: int) -> None:
        self.acknowledged: dict[str, str | None] = {}
        self.doubtful: set[str] = set()
        self.highest = 0
        self._random = random.Random(seed)

    async def run(self, http: Any, prefix: str) -> None:
        number = 0
        while True:
            number += 1
            name = f"{prefix}-{number % 40}"
            self.doubtful.add(name)
            answer = await self._write(http, name)
            assert answer.status in {200, 201}, answer.body
            is_gone = answer.body["kind"] == "Status"
            version = None if is_gone else answer.body["metadata"]["resourceVersion"]
            self.acknowledged[name] = version
            self.doubtful.discard(name)
            self.highest = max(self.highest, int(version or 0))

    async def _write(self, http: Any, name: str) -> Any:
        if self.acknowledged.get(name) is None:
            return await http.call("POST", CMS, {"metadata": {"name": name}})
        if self._random.random() < 0.3:
            return await http.delete(f"{CMS}/{name}")
        data = {"data": {"n": str(self._random.random())}}
        return await http.patch(f"{CMS}/{name}", data)


async def test_every_acknowledged_write_survives_a_kill_and_versions_never_go_back(
    tmp_path, open_http
):
    writer = Writer(seed=7)
    moments = random.Random(7)
    for round_number in range(ROUNDS):
        async with served(tmp_path) as (process, kubeconfig):
            http = open_http(kubeconfig)
            listed = (await http.get(CMS)).body
            assert int(listed["metadata"]["resourceVersion"]) >= writer.highest
            check_nothing_lost(listed, writer)
            tasks = [
                asyncio.create_task(writer.run(http, f"r{round_number}w{number}"))
                for number in range(3)
            ]
            known = len(writer.acknowledged)
            await eventually(lambda known=known: len(writer.acknowledged) > known + 5)
            await asyncio.wait(tasks, timeout=moments.uniform(0.1, 0.5))
            process.kill()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, aiohttp.ClientError | OSError) for r in results), results
            await http.session.close()
    assert len(writer.acknowledged) > 20
    async with served(tmp_path) as (_, kubeconfig):
        http = open_http(kubeconfig)
        check_nothing_lost((await http.get(CMS)).body, writer)
        await http.session.close()


def check_nothing_lost(listed: dict[str, Any], writer: Writer) -> None:
    found = {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in listed["items"]}
    for name, version in writer.acknowledged.items():
        if name not in writer.doubtful:
            assert found.get(name) == version, name


async def test_a_watch_from_before_a_restart_goes_on(tmp_path, open_http):
    cluster = DevCluster(tmp_path)
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    old = await http.make(CMS, {"metadata": {"name": "a"}})
    for name in ("b", "c"):
        await http.make(CMS, {"metadata": {"name": name, "labels": {"app": "x"}}})
    await http.patch(f"{CMS}/b", {"metadata": {"labels": {"app": "y"}}})
    await http.delete(f"{CMS}/c")
    await http.session.close()
    await cluster.stop()
    again = DevCluster(tmp_path)
    await again.start()
    http = open_http(again.kubeconfig)
    assert (await http.get(f"{CMS}/a")).body == old
    version = old["metadata"]["resourceVersion"]
    # What left the selection is told as it was when it matched last: history has both states.
    async with http.watch(f"{CMS}?resourceVersion={version}&labelSelector=app%3Dx") as events:
        received = [await anext(events) for _ in range(4)]
    changes = [(event["type"], event["object"]["metadata"]["name"]) for event in received]
    assert changes == [("ADDED", "b"), ("ADDED", "c"), ("DELETED", "b"), ("DELETED", "c")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in received]
    assert versions == sorted(versions)
    await http.session.close()
    await again.stop()


async def test_beyond_the_bounded_history_a_watch_must_list_again(tmp_path, open_http):
    cluster = DevCluster(tmp_path, history=20)
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    old = await http.make(CMS, {"metadata": {"name": "a"}})
    for number in range(25):
        await http.make(CMS, {"metadata": {"name": f"b-{number}"}})
    await http.session.close()
    await cluster.stop()
    again = DevCluster(tmp_path, history=20)
    await again.start()
    http = open_http(again.kubeconfig)
    version = old["metadata"]["resourceVersion"]
    async with http.watch(f"{CMS}?resourceVersion={version}") as events:
        event = await anext(events)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    await http.session.close()
    await again.stop()


async def test_two_servers_never_share_a_folder(tmp_path, cluster):
    with pytest.raises(DevClusterError, match="another process"):
        await DevCluster(tmp_path / "cluster").start()


def test_an_address_that_others_can_reach_is_refused(tmp_path):
    with pytest.raises(DevClusterError, match="loopback"):
        DevCluster(tmp_path, host="0.0.0.0")


def changed(store, floor):
    """All changes that are known to have happened after `floor`, as a watch reports them."""
    return [
        (
            one.revision,
            one.type,
            one.item.key,
            one.item.revision,
            one.item.data,
            one.previous and (one.previous.revision, one.previous.data),
        )
        for one in store.changes_since("configmaps", floor)
    ]


@pytest.mark.parametrize("history", [10_000, 150])
def test_the_history_is_the_same_after_a_restart(tmp_path, history):
    chance, path = random.Random(11), tmp_path / "objects.sqlite"
    store, there = Store(path, history=history), set()
    for number in range(1500):
        name = f"c-{chance.randrange(20)}"
        metadata = {"name": name, "namespace": "n"}
        if name in there and chance.random() < 0.3:
            last = {"metadata": metadata, "gone": number} if chance.random() < 0.5 else None
            store.remove("configmaps", "n", name, last)
            there.discard(name)
        else:
            bucket = "configmaps" if chance.random() < 0.9 else "secrets"
            store.put(bucket, {"metadata": metadata, "data": {"n": str(number)}})
            there |= {name} if bucket == "configmaps" else set()
    floor = store.revision - min(history, 1500) + 1
    before = changed(store, floor)
    then = [item.data for item in store.items_at("configmaps", floor)]
    store.close()
    again = Store(path, history=history)
    assert again.revision == store.revision
    assert changed(again, floor) == before
    assert [item.data for item in again.items_at("configmaps", floor)] == then
    put = again.put("configmaps", {"metadata": {"name": "c-1", "namespace": "n"}})
    assert changed(again, put.revision - 1)[0][0] == put.revision
    again.close()
    size = sqlite3.connect(path).execute("SELECT count(*) FROM changes").fetchone()[0]
    assert size <= history + 256


def test_changes_that_nobody_kept_end_the_history(tmp_path):
    """An older program wrote to the same file."""
    path = tmp_path / "objects.sqlite"
    store = Store(path)
    for name in ("a", "b"):
        store.put("configmaps", {"metadata": {"name": name, "namespace": "n"}})
    store.close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE counter SET revision = revision + 1")
    file.close()
    again = Store(path)
    with pytest.raises(StatusError, match="too old resource version"):
        again.changes_since("configmaps", store.revision)
    assert again.changes_since("configmaps", again.revision) == []
    again.close()


def test_a_write_that_fails_leaves_no_trace(tmp_path):
    store = Store(tmp_path / "objects.sqlite")
    store.put("configmaps", {"metadata": {"name": "a", "namespace": "n", "uid": "1"}})
    before, heard = store.revision, []
    store.listeners.append(heard.append)
    store.close()
    with pytest.raises(Exception, match="closed"):
        store.put("configmaps", {"metadata": {"name": "b", "namespace": "n", "uid": "2"}})
    assert (store.revision, heard) == (before, [])
    assert store.get("configmaps", "n", "b") is None
