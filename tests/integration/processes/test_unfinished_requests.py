"""Incomplete requests to our HTTP servers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp import web

from ipuhub.certificates import self_signed
from ipuhub.process.connections import FOR_PROBES
from ipuhub.process.health import Health, Limits, build_runner, listening
from ipuhub.times import utc_now
from partitions.vipu.agent.exporter import Exporter
from partitions.vipu.agent.machine import Machine
from tests.fakes.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HASTY = Limits(silence_seconds=0.2, body_seconds=0.2, bodies_bytes=200_000, lingering_seconds=0.1)
LARGE = 30_000_000
"""Bytes of an answer that no buffers of sockets hold."""
POST = b"POST /size HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n"


async def size(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def large(_: web.Request) -> web.Response:
    return web.Response(body=bytes(LARGE))


async def watch(request: web.Request) -> web.StreamResponse:
    """Says nothing until its client says something, as a watch without events."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(await request.content.readany())
    return response


@asynccontextmanager
async def serving(limits: Limits, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    app = web.Application(client_max_size=150_000)
    app.add_routes([web.post("/size", size), web.post("/watch", watch), web.get("/large", large)])
    app.add_routes(Health().routes())
    runner = build_runner(app, shutdown_seconds=0.1, limits=limits)
    async with listening(runner, "127.0.0.1", 0, ssl_context=context) as port:
        yield port


async def exchange(port: int, sent: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """All that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("sent", [b"", b"POST /si", POST, POST + b"X: y\r\n"])
async def test_a_head_that_does_not_end_is_hung_up(sent: bytes) -> None:
    async with serving(HASTY) as port:
        assert await exchange(port, sent) == b""


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
        answer = await exchange(port, sent)
        assert answer.startswith(b"HTTP/1.1 408 The body did not arrive within 0.2 s.")


async def test_what_is_whole_is_answered_beside_many_that_are_not() -> None:
    limits = Limits(
        silence_seconds=60, body_seconds=60, bodies_bytes=200_000, lingering_seconds=0.1
    )
    async with serving(limits) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for number, (_, writer) in enumerate(silent):
            writer.write([b"", POST, POST + b"Content-Length: 10\r\n\r\n1"][number % 3])
        whole = await exchange(port, POST + CLOSE + b"Content-Length: 3\r\n\r\n123")
        assert whole.endswith(b"\r\n\r\n3")
        assert (await exchange(port, PROBE)).startswith(b"HTTP/1.1 200 OK")
        for _, writer in silent:
            writer.close()


CLOSE = b"Connection: close\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n" + CLOSE + b"\r\n"


def own_certificate(tmp_path: Path) -> ssl.SSLContext:
    pair = self_signed("localhost", "127.0.0.1", utc_now())
    (tmp_path / "pem").write_bytes(pair.key + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    return context


@pytest.mark.parametrize("with_tls", [False, True])
async def test_probes_and_requests_in_progress_outlive_more_silent_ones_than_the_limit(
    with_tls: bool, tmp_path: Path
) -> None:
    """Each silent connection stayed for two minutes, and is an open file."""
    limits = Limits(silence_seconds=600, connections=20)
    served, trusting = None, None
    if with_tls:
        served = own_certificate(tmp_path)
        trusting = ssl._create_unverified_context()  # its name is of no matter
    async with serving(limits, served) as port:
        begun = POST.replace(b"/size", b"/watch") + CLOSE + b"Content-Length: 3\r\n\r\n"
        answers, watching = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        watching.write(begun)
        await answers.readuntil(b"\r\n\r\n")
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        assert (await exchange(port, PROBE, trusting)).startswith(b"HTTP/1.1 200 OK")
        oldest = (reader.read() for reader, _ in silent[: 60 - 20 - FOR_PROBES])
        ended = asyncio.gather(*oldest, return_exceptions=True)
        for end in await asyncio.wait_for(ended, PATIENCE_SECONDS):  # they make room
            assert end == b"" or isinstance(end, ConnectionError)
        watching.write(b"end")
        assert b"end" in await answers.read()
        for _, writer in [*silent, (answers, watching)]:
            writer.close()


async def test_with_the_limit_of_requests_in_progress_only_probes_are_answered() -> None:
    async with serving(Limits(connections=2, lingering_seconds=0.1)) as port:
        begun = POST.replace(b"/size", b"/watch") + b"Content-Length: 3\r\n\r\n"
        watches = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in watches:
            writer.write(begun)
            await reader.readuntil(b"\r\n\r\n")
        whole = POST + CLOSE + b"Content-Length: 1\r\n\r\n1"
        refused = await exchange(port, whole)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: " in refused
        assert (await exchange(port, PROBE)).startswith(b"HTTP/1.1 200 OK")
        watches[0][1].write(b"end")
        await watches[0][0].readuntil(b"0\r\n\r\n")
        assert (await exchange(port, whole)).endswith(b"\r\n\r\n1")
        for _, writer in watches:
            writer.close()


async def test_large_bodies_share_a_bound_and_small_ones_wait_for_nobody() -> None:
    limits = Limits(
        silence_seconds=60, body_seconds=0.2, bodies_bytes=200_000, lingering_seconds=0.1
    )
    async with serving(limits) as port:
        large = POST + b"Content-Length: 140000\r\nConnection: close\r\n\r\n"
        _, holder = await asyncio.open_connection("127.0.0.1", port)
        holder.write(large + b"1")  # takes the room, and does not end
        answers = asyncio.gather(*(exchange(port, large + b"1" * 70_000) for _ in range(3)))
        small = await exchange(port, POST + b"Content-Length: 1\r\nConnection: close\r\n\r\n1")
        assert small.endswith(b"\r\n\r\n1")
        codes = sorted(answer.split()[1] for answer in await answers)
        assert set(codes) <= {b"408", b"503"}
        assert b"503" in codes
        holder.close()
        assert (await exchange(port, large + b"1" * 140_000)).endswith(b"\r\n\r\n140000")


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
    assert b" 400 " in await exchange(port, b"GET /metrics HTTP/9.9\r\nHost: x\r\n\r\n")
    assert b" 200 " in await exchange(port, get + broken)
    await exporter.stop()
    assert [record.exc_info for record in caplog.records] == [None]
