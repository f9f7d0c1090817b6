"""Incomplete requests to our HTTP servers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp import web

from ipuhub.process.health import Health, Limits, build_runner
from ipuhub.times import utc_now
from partitions.vipu.agent.exporter import Exporter
from partitions.vipu.agent.machine import Machine
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HASTY = Limits(silence_seconds=0.2, body_seconds=0.2, bodies_bytes=200_000, lingering_seconds=0.1)
POST = b"POST /size HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n"


async def size(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


@asynccontextmanager
async def serving(limits: Limits) -> AsyncIterator[int]:
    app = web.Application(client_max_size=150_000)
    app.add_routes([web.post("/size", size), *Health().routes()])
    runner = build_runner(app, shutdown_seconds=0.1, limits=limits)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def said(port: int, sent: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("sent", [b"", b"POST /si", POST, POST + b"X: y\r\n"])
async def test_a_head_that_does_not_end_is_hung_up(sent: bytes) -> None:
    async with serving(HASTY) as port:
        assert await said(port, sent) == b""


@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 10\r\n\r\n123",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n",
        POST + b"Content-Length: 140000\r\n\r\n123",
    ],
)
async def test_a_body_that_does_not_end_is_a_408(sent: bytes) -> None:
    async with serving(HASTY) as port:
        answer = await said(port, sent)
        assert answer.startswith(b"HTTP/1.1 408 The body did not arrive within 0.2 s.")


async def test_what_is_whole_is_answered_beside_many_that_are_not() -> None:
    limits = Limits(
        silence_seconds=60, body_seconds=60, bodies_bytes=200_000, lingering_seconds=0.1
    )
    async with serving(limits) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for number, (_, writer) in enumerate(silent):
            writer.write([b"", POST, POST + b"Content-Length: 10\r\n\r\n1"][number % 3])
        close = b"Connection: close\r\n"
        whole = await said(port, POST + close + b"Content-Length: 3\r\n\r\n123")
        assert whole.endswith(b"\r\n\r\n3")
        probe = await said(
            port, b"GET /healthz HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n" + close + b"\r\n"
        )
        assert probe.startswith(b"HTTP/1.1 200 OK")
        for _, writer in silent:
            writer.close()


async def test_large_bodies_share_a_bound_and_small_ones_wait_for_nobody() -> None:
    limits = Limits(
        silence_seconds=60, body_seconds=0.2, bodies_bytes=200_000, lingering_seconds=0.1
    )
    async with serving(limits) as port:
        large = POST + b"Content-Length: 140000\r\nConnection: close\r\n\r\n"
        _, holder = await asyncio.open_connection("127.0.0.1", port)
        holder.write(large + b"1")  # takes the room, and does not end
        answers = asyncio.gather(*(said(port, large + b"1" * 70_000) for _ in range(3)))
        small = await said(port, POST + b"Content-Length: 1\r\nConnection: close\r\n\r\n1")
        assert small.endswith(b"\r\n\r\n1")
        codes = sorted(answer.split()[1] for answer in await answers)
        assert set(codes) <= {b"408", b"503"}
        assert b"503" in codes
        holder.close()
        assert (await said(port, large + b"1" * 140_000)).endswith(b"\r\n\r\n140000")


async def test_who_leaves_while_he_is_asked_to_go_on_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Limits()) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        writer.write_eof()
        await eventually(lambda: bool(caplog.records))
        writer.close()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    assert "disconnected during its request" in record.getMessage()


async def test_the_metrics_of_an_agent_log_no_traceback_for_bytes_of_strangers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Mock(spec=Machine, metrics=lambda _: (), partition_metrics=lambda _: ())
    exporter = Exporter("agent", machine, utc_now, AsyncMock())
    port = await exporter.start("127.0.0.1", 0)
    get = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    broken = b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde"
    assert b" 400 " in await said(port, b"GET /metrics HTTP/9.9\r\nHost: x\r\n\r\n")
    assert b" 200 " in await said(port, get + broken)
    await exporter.stop()
    assert [record.exc_info for record in caplog.records] == [None]
