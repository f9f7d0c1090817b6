"""The operator's client against the proxy's own routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from ipuhub.kube.errors import Unreachable
from partitions.client import ProxyClient
from partitions.errors import ProxyRefused, ProxyUnavailable
from tests.fakes.configmaps import unreachable
from tests.integration.proxy.conftest import START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.proxy.conftest import Site

JOB: dict[str, Any] = {
    "uid": "uid-job",
    "namespace": "default",
    "name": "job",
    "instance": 0,
    "size": 4,
    "attempt": 0,
}


async def operator() -> str:
    return "operator"


async def prober() -> str:
    return "prober"


@pytest.fixture
async def client(site: Site) -> AsyncIterator[ProxyClient]:
    async with ProxyClient(site.url + "/", operator) as made:
        yield made


async def test_a_partition_comes_resets_and_goes(client: ProxyClient) -> None:
    record = await client.ensure(**JOB)
    assert (record.phase, record.id, record.controller) == ("active", "p-job-default-0", "v1:8090")
    assert record.node_selector == {"vipu-ctrl": "v1"}
    assert (record.reserved_at, record.released_at) == (START, None)
    assert (await client.reset("uid-job", 0, 1)).attempt == 1
    gone = await client.release("uid-job", 0)
    assert gone is not None
    assert (gone.phase, gone.released_at) == ("released", START)


async def test_release_of_what_nobody_knows_is_none(client: ProxyClient) -> None:
    assert await client.release("nobody", 0) is None


async def test_waiting_is_an_answer_and_no_error(client: ProxyClient) -> None:
    record = await client.ensure(**{**JOB, "size": 64})
    assert (record.phase, record.needed, record.free) == ("waiting", 64, 32)


async def test_the_list_is_fetched_again_only_when_something_changed(
    client: ProxyClient,
) -> None:
    assert list(await client.list()) == []
    await client.ensure(**JOB)
    first = await client.list()
    assert [record.id for record in first] == ["p-job-default-0"]
    assert await client.list() is first
    await client.release("uid-job", 0)
    assert [record.phase for record in await client.list()] == ["released"]


async def test_the_fleet_is_fetched_again_only_when_something_changed(client: ProxyClient) -> None:
    first = await client.fleet()
    assert await client.fleet() is first
    await client.ensure(**JOB)
    (controller,) = (second := await client.fleet())["controllers"]
    assert [each["id"] for each in controller["partitions"]] == ["p-job-default-0"]
    assert await client.fleet() is second


async def test_acknowledged_records_are_marked(client: ProxyClient, site: Site) -> None:
    await client.ensure(**JOB)
    await client.release("uid-job", 0)
    (record,) = await client.list()
    async with ProxyClient(site.url, prober) as recorder:
        await recorder.acknowledge([record.key])
    assert site.world.entry().recorded


async def test_controllers_are_shown(client: ProxyClient) -> None:
    (one,) = (await client.controllers())["items"]
    assert (one["address"], one["free"]) == ("v1:8090", 32)


async def test_stats_are_the_open_ones(client: ProxyClient) -> None:
    await client.ensure(**JOB)
    assert (await client.stats())["total"] == {"used": 4, "available": 28}


async def test_a_refusal_carries_status_and_sentence(client: ProxyClient) -> None:
    await client.ensure(**{**JOB, "attempt": 2})
    with pytest.raises(ProxyRefused, match="attempt 2") as stale:
        await client.ensure(**JOB)
    assert (stale.value.status, stale.value.retryable) == (409, False)
    with pytest.raises(ProxyRefused) as wrong:
        await client.ensure(**{**JOB, "size": 6})
    assert wrong.value.status == 422
    with pytest.raises(ProxyRefused) as unknown:
        await client.reset("nobody", 0, 1)
    assert unknown.value.status == 404


async def test_no_access_and_no_tracker_are_worth_another_try(site: Site) -> None:
    async def stranger() -> str:
        return "stranger"

    async with ProxyClient(site.url, stranger) as client:
        with pytest.raises(ProxyUnavailable, match="may not list") as refused:
            await client.list()
        assert refused.value.retryable
    site.reviews.down = unreachable()
    async with ProxyClient(site.url, operator) as client:
        with pytest.raises(ProxyUnavailable, match="connection refused"):
            await client.list()


async def test_a_proxy_that_is_away_is_unavailable() -> None:
    async with ProxyClient("http://127.0.0.1:9", operator) as client:
        with pytest.raises(ProxyUnavailable, match="127.0.0.1:9"):
            await client.list()


async def test_without_a_token_nothing_is_asked(site: Site) -> None:
    async def none() -> str:
        raise Unreachable("API server away")

    async with ProxyClient(site.url, none) as client:
        with pytest.raises(ProxyUnavailable, match="API server away"):
            await client.list()


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(text="<html>"),
        web.Response(text="[]", content_type="application/json"),
        web.Response(text='{"items":[{"uid":1}]}', content_type="application/json"),
        web.Response(text=""),
        web.Response(status=502, text="Bad Gateway"),
    ],
)
async def test_an_answer_that_is_not_the_proxys_is_unavailable(answer: web.Response) -> None:
    async def handler(_: web.Request) -> web.Response:
        return answer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with ProxyClient(url, operator) as client:
            with pytest.raises(ProxyUnavailable):
                await client.list()
    finally:
        await runner.cleanup()
