"""kill -9 at random moments: nothing that was acknowledged is lost, no version comes back."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ipuhub.devcluster.server import DevCluster, DevClusterError
from ipuhub.devcluster.store import Store
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
    """Writes without end and keeps what was acknowledged: name -> resourceVersion or None."""

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


async def test_a_watch_from_before_a_restart_must_list_again(tmp_path, open_http):
    cluster = DevCluster(tmp_path)
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    old = await http.make(CMS, {"metadata": {"name": "a"}})
    await http.make(CMS, {"metadata": {"name": "b"}})
    await http.session.close()
    await cluster.stop()
    again = DevCluster(tmp_path)
    await again.start()
    http = open_http(again.kubeconfig)
    assert (await http.get(f"{CMS}/a")).body == old
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
