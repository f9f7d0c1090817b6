"""`::` as the host of a server: every address of the machine, IPv6 and IPv4."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiohttp import web

from ipuhub.addresses import EVERYWHERE, address_of, host_of, listening_hosts
from ipuhub.process.health import ListenError, build_runner, listening
from ipuhub.webserver.server import WebServer
from partitions.vipu.agent.ipuof import IpuofPorts
from partitions.vipu.agent.main import AgentOptions, VipuAgent
from tests.fakes.freeport import free_port
from tests.fakes.loopbacks import reached_hosts
from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


@asynccontextmanager
async def pages_of_a_process() -> AsyncIterator[int]:
    async def answer_with_caller(request: web.Request) -> web.Response:
        return web.Response(text=request.remote)

    app = web.Application()
    app.router.add_get("/metrics", answer_with_caller)
    runner = build_runner(app)
    # Of both families: a port that one of them chooses may be taken in the other.
    async with listening(runner, EVERYWHERE, free_port()) as port:
        yield port


@asynccontextmanager
async def dashboard() -> AsyncIterator[int]:
    def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [environ["REMOTE_ADDR"].encode()]

    server = WebServer(application)
    try:
        yield await server.start(EVERYWHERE, free_port())
    finally:
        await server.stop()


@pytest.mark.parametrize("serve", [pages_of_a_process, dashboard])
@pytest.mark.parametrize("family", ["both", "IPv4 alone"])
async def test_a_client_of_either_family_is_answered_and_known_by_its_own_address(
    serve: Any, family: str
) -> None:
    with reached_hosts(family) as hosts:
        async with serve() as port, aiohttp.ClientSession() as session:
            for host in hosts:
                async with session.get(f"http://{address_of(host, port)}/metrics") as answer:
                    # Not ::ffff:127.0.0.1, which no network of trusted proxies would have.
                    assert (answer.status, await answer.text()) == (200, host)


@pytest.mark.parametrize("family", ["both", "IPv4 alone"])
async def test_an_agent_answers_at_each_of_its_ports(family: str) -> None:
    agent = VipuAgent(AgentOptions(host=EVERYWHERE, port=0, exporter_port=free_port()))
    with reached_hosts(family) as hosts:
        ipuof = IpuofPorts.reserve(EVERYWHERE, 0, 1)
        ipuof.follow([0])
        try:
            (ports,) = await agent.start()
            async with aiohttp.ClientSession() as session:
                for host in hosts:
                    url = f"http://{address_of(host, ports.exporter)}/metrics"
                    async with session.get(url) as answer:
                        assert answer.status == 200
                    for port in (ports.api, ipuof.ports[0]):
                        socket.create_connection((host, port), PATIENCE_SECONDS).close()
        finally:
            ipuof.close()
            await agent.stop()


async def test_of_a_name_with_both_families_that_of_the_system_is_listened_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    lookup = AsyncMock(side_effect=[found, found[:1]])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
    with reached_hosts("IPv4 alone"):
        async with listening(build_runner(web.Application()), "both.example", 0) as port:
            socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS).close()
        with pytest.raises(ListenError, match="not supported"):
            async with listening(build_runner(web.Application()), "ipv6.example", 0):
                pass


@pytest.mark.parametrize("host", ["127.0.0.1", "fd00::1", "proxy.example"])
def test_an_address_is_read_as_it_was_written(host: str) -> None:
    assert host_of(address_of(host, 8090)) == host
    assert listening_hosts(host) == (host,)
