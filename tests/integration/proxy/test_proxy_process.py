"""The whole proxy against a real API server and a real vipu-server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import structlog

from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.kube.token import TokenSource
from ipuhub.process.health import Limits, build_runner
from partitions.client import ProxyClient
from partitions.proxy import process
from partitions.proxy.process import running, sweep_once
from partitions.proxy.sweep import SweepOptions
from partitions.vipu.client import CreateRequest, VipuClient
from tests.fakes.proxylab import JOB, LABEL, SYSTEM, read_path, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.fakes.proxylab import Lab

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


async def test_a_job_gets_its_partition_and_gives_it_back(lab: Lab) -> None:
    async with running(lab.options) as proxy, lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        record = await operator.ensure(**JOB)
        assert (record.phase, record.id) == ("active", "p-ipujob-sample-default-0")
        assert record.node_selector == {"vipu-ctrl": "proxytest"}
        assert await lab.exists() == [record.id]
        assert await read_path(proxy, "/stats") == (200, (GOLDEN / "stats.json").read_text())

        stored = await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM)
        assert json.loads(stored["data"][record.key])["phase"] == "active"
        again = await operator.reset(JOB["uid"], 0, 1)
        assert (again.phase, again.attempt) == ("active", 1)
        gone = await operator.release(JOB["uid"], 0)
        assert gone is not None
        assert gone.phase == "released"
        assert await lab.exists() == []
        assert await read_path(proxy, "/stats") == (200, (GOLDEN / "stats-empty.json").read_text())


async def test_no_loop_of_a_serving_proxy_ends_by_itself_for_that_would_end_the_process(
    lab: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "controllers.yaml"
    path.write_text(lab.options.controllers)
    in_a_file = replace(lab.options, controllers="", controllers_path=str(path))
    for options in (lab.options, in_a_file):
        async with running(options) as proxy:
            await eventually(partial(ready, proxy))
            assert [loop for loop in proxy.loops if loop.done()] == []


async def test_each_phase_of_a_partition_is_logged_with_the_jobs_uid(lab: Lab) -> None:
    with structlog.testing.capture_logs() as logged:
        async with running(lab.options) as proxy, lab.operator(proxy) as operator:
            await eventually(lambda: ready(proxy))
            await operator.ensure(**JOB)
            await operator.release(JOB["uid"], 0)
    entries = [entry for entry in logged if entry["event"] == "partition"]
    assert [entry["phase"] for entry in entries][-2:] == ["active", "released"]
    names = {"id": "p-ipujob-sample-default-0", "job": "default/ipujob-sample"}
    for entry in entries:
        assert entry.items() >= (names | {"job_uid": JOB["uid"]}).items()


async def test_orders_are_taken_on_a_second_port_only_where_there_is_one(lab: Lab) -> None:
    async with running(replace(lab.options, mutations_port=0)) as proxy:
        await eventually(lambda: ready(proxy))
        assert proxy.mutations_port != proxy.port
        for path in ("/v1/partitions", "/v1/controllers", "/v1/partitions/uid-job/0"):
            assert (await read_path(proxy, path))[0] == 404
        for path, status in (("/stats", 200), ("/health", 200), ("/metrics", 401)):
            assert (await read_path(proxy, path))[0] == status
        token = TokenSource(lab.client, f"{SYSTEM}/ipuhub-operator", "ipuhub-proxy")
        async with ProxyClient(f"http://127.0.0.1:{proxy.mutations_port}", token) as operator:
            assert (await operator.ensure(**JOB)).phase == "active"
            assert await operator.stats()


async def test_query_answers_as_documented(lab: Lab) -> None:
    async with (
        running(lab.options) as proxy,
        lab.operator(proxy) as operator,
        aiohttp.ClientSession() as http,
    ):
        await eventually(lambda: ready(proxy))
        await operator.ensure(**JOB)
        url = f"http://127.0.0.1:{proxy.port}/query"
        async with http.post(url, json={"size": 2}) as answer:
            assert await answer.text() == (GOLDEN / "query-2.json").read_text()
        async with http.post(url, json={"size": 64}) as answer:
            assert "the largest has 32" in (await answer.json())["message"]


async def test_half_a_body_is_refused_in_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(build_runner, limits=Limits(body_seconds=0.2))
    monkeypatch.setattr(process, "build_runner", hasty)
    end = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield b'{"size": '
        await end.wait()

    async with running(lab.options) as proxy, aiohttp.ClientSession() as http:
        await eventually(lambda: ready(proxy))
        url, json_type = (
            f"http://127.0.0.1:{proxy.port}/query",
            {"Content-Type": "application/json"},
        )
        async with http.post(url, data=half(), headers=json_type) as answer:
            assert answer.status == 408
        end.set()


async def test_only_a_token_for_this_audience_with_the_right_gets_in(lab: Lab) -> None:
    operator = f"{SYSTEM}/ipuhub-operator"
    proxy_account = f"{SYSTEM}/ipuhub-proxy"
    async with running(lab.options) as proxy:
        await eventually(lambda: ready(proxy))

        async def status(account: str, audience: str) -> int:
            token = await TokenSource(lab.client, account, audience)()
            headers = {"Authorization": f"Bearer {token}"}
            return (await read_path(proxy, "/v1/partitions", **headers))[0]

        assert await status(operator, "ipuhub-proxy") == 200
        assert await status(operator, "some-other-service") == 401
        assert await status(proxy_account, "ipuhub-proxy") == 403
        assert (await read_path(proxy, "/v1/partitions"))[0] == 401


async def test_the_next_proxy_picks_up_where_the_last_one_stopped(lab: Lab) -> None:
    async with running(lab.options) as proxy, lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        record = await operator.ensure(**JOB)
    async with running(lab.options) as proxy, lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        assert [one.id for one in await operator.list()] == [record.id]
        assert await operator.ensure(**JOB) == record
        await operator.release(JOB["uid"], 0)
    assert await lab.exists() == []


async def test_two_proxies_at_once_lose_no_update(lab: Lab) -> None:
    async with (
        running(lab.options) as one,
        running(lab.options) as other,
        lab.operator(one) as first,
        lab.operator(other) as second,
    ):
        await eventually(lambda: ready(one))
        await eventually(lambda: ready(other))
        records = await asyncio.gather(
            *(
                client.ensure(**{**JOB, "uid": f"uid-{n}", "name": f"job-{n}", "size": 1})
                for n in range(8)
                for client in ([first, second][n % 2],)
            )
        )
        assert {record.phase for record in records} == {"active"}
        assert sorted(await lab.exists()) == sorted(record.id for record in records)
        stored = await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM)
        assert len(stored["data"]) == 8
        for n, client in enumerate([first, second] * 4):
            await client.release(f"uid-{n}", 0)
    assert await lab.exists() == []


async def test_a_partition_that_a_stranger_replaced_is_lost_before_the_next_sweep(lab: Lab) -> None:
    options = replace(lab.options, sweep=SweepOptions(every_seconds=3600))
    async with running(options) as proxy, lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        record = await operator.ensure(**JOB)
        async with VipuClient(f"127.0.0.1:{lab.vipu_port}") as vipu:
            await vipu.remove_partition(record.id, force=True)
            await vipu.create_partition(CreateRequest(record.id, 2 * record.size))

        async def reason() -> str:
            return (await operator.list())[0].reason

        assert await eventually(reason) == "PartitionLost"
        assert await lab.exists() == [record.id]


async def test_a_person_partition_is_left_alone_by_a_single_sweep(lab: Lab) -> None:
    async with VipuClient(f"127.0.0.1:{lab.vipu_port}") as vipu:
        await vipu.create_partition(CreateRequest("mine", 8))
    await sweep_once(lab.options)
    assert await lab.exists() == ["mine"]


async def test_an_edit_of_the_configmap_does_not_wait_for_a_kubelet_to_write_the_file(
    lab: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "controllers.yaml"
    path.write_text(f"127.0.0.1:{lab.vipu_port}:{LABEL}\n")
    options = replace(
        lab.options,
        controllers="",
        controllers_path=str(path),
        controllers_configmap="controllers",
        controllers_seconds=0.1,
    )
    stored = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "controllers", "namespace": SYSTEM},
        "data": {"controllers.yaml": f"127.0.0.1:{lab.vipu_port}:{LABEL},127.0.0.1:1:{LABEL}"},
    }
    async with running(options) as proxy, lab.operator(proxy) as operator:

        async def count() -> int:
            return len((await operator.controllers())["items"])

        async def is_two() -> bool:
            return await count() == 2

        async def is_one() -> bool:
            return await count() == 1

        await eventually(is_one)
        await lab.client.create(CONFIG_MAPS, stored, SYSTEM)
        await eventually(is_two)
        only = {"data": {"controllers.yaml": f"127.0.0.1:1:{LABEL}"}}
        await lab.client.patch(CONFIG_MAPS, "controllers", only, SYSTEM)
        await eventually(is_one)


async def test_the_controllers_file_is_watched_and_a_bad_edit_changes_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "controllers.yaml"
    options = replace(lab.options, controllers="", controllers_path=str(path))
    async with running(options) as proxy, lab.operator(proxy) as operator:

        async def problem() -> str:
            return str((await operator.controllers())["problem"])

        async def has_one() -> bool:
            return len((await operator.controllers())["items"]) == 1

        async def tracker_is_read() -> bool:
            return "API server" not in (await read_path(proxy, "/readyz"))[1]

        await eventually(tracker_is_read)
        assert "controllers.yaml" in (await read_path(proxy, "/readyz"))[1]
        path.write_text(f"127.0.0.1:{lab.vipu_port}:{LABEL}\n")
        await eventually(has_one)
        assert (await operator.ensure(**JOB)).phase == "active"
        path.write_text("127.0.0.1:eighty\n")
        assert "write host:port:label=value" in await eventually(problem)
        assert await has_one()
        await operator.release(JOB["uid"], 0)
