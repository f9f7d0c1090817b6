"""Clients of the webhooks that take their time: they hold up neither memory nor others."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ipuhub.process.connections import CountedSite
from ipuhub.process.health import IDLE_SECONDS, Health, Limits, build_runner, listening
from ipuhub.process.httpbodies import BodyReader
from jobs.webhooks.server import VALIDATE_PATH, WebhookRules, build_app, webhook_bodies
from tests.builders.ipujobs import ipujob
from tests.fakes.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp.web import Application

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
KIB = 1024


@asynccontextmanager
async def serving(app: Application, **options: Any) -> AsyncIterator[int]:
    limits = {"limits": Limits(bodies_bytes=0)}  # as the command has them
    runner = build_runner(app, shutdown_seconds=0.1, **limits | options)
    await runner.setup()
    await CountedSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def webhooks(bodies: BodyReader) -> Application:
    return build_app(WebhookRules(), bodies=bodies)


def head(length: int) -> bytes:
    return f"POST {VALIDATE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


async def begun(port: int, sent: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def answered(connection: Connection) -> bytes:
    """All that comes until the server hangs up."""
    reader, writer = connection
    async with asyncio.timeout(PATIENCE_SECONDS):
        found = await reader.read()
    writer.close()
    return found


async def review(port: int) -> Any:
    request = {"uid": "u-1", "operation": "CREATE", "object": ipujob().build()}
    url = f"http://127.0.0.1:{port}{VALIDATE_PATH}"
    async with aiohttp.ClientSession() as session:
        answer = await session.post(url, data=json.dumps({"request": request}))
        assert answer.status == 200
        return (await answer.json())["response"]


async def test_a_body_that_does_not_come_to_its_end_is_given_up() -> None:
    async with serving(webhooks(BodyReader(KIB, KIB, 0.05))) as port:
        answer = await answered(await begun(port, head(100) + b"{"))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.05 s" in answer


async def test_unfinished_bodies_share_a_bounded_memory_and_the_oldest_goes_first() -> None:
    bodies = BodyReader(64 * KIB, 128 * KIB, PATIENCE_SECONDS)
    async with serving(webhooks(bodies)) as port:
        open_ones = []
        for number in range(1, 6):
            open_ones.append(await begun(port, head(64 * KIB) + b" " * 40 * KIB))
            want = min(number, 3) * 40 * KIB
            await eventually(lambda: bodies.held_bytes, lambda held, want=want: held == want)
        for connection in open_ones[:2]:
            assert (await answered(connection)).startswith(b"HTTP/1.1 408 ")
        assert (await review(port))["allowed"] is True
        for _, writer in open_ones[2:]:
            writer.transport.abort()
        await eventually(lambda: bodies.held_bytes == 0)


async def test_a_body_beyond_the_limit_is_refused_with_the_requests_uid() -> None:
    async with serving(webhooks(BodyReader(KIB, KIB, PATIENCE_SECONDS))) as port:
        body = b'{"request":{"uid":"u-9","object":"' + b"x" * 4 * KIB + b'"}}'
        url = f"http://127.0.0.1:{port}{VALIDATE_PATH}"
        async with aiohttp.ClientSession() as session, session.post(url, data=body) as answer:
            found = (await answer.json())["response"]
    assert (found["uid"], found["allowed"]) == ("u-9", False)
    assert found["status"]["message"] == "the body exceeds 1024 bytes"


@pytest.mark.parametrize("sent", [b"", b"POST /validate-ipujob HTTP/1.1\r\nHost: x\r\nX-A: "])
async def test_who_sends_no_whole_head_is_hung_up_on(sent: bytes) -> None:
    async with serving(webhooks(webhook_bodies()), limits=Limits(0.05, bodies_bytes=0)) as port:
        assert await answered(await begun(port, sent)) == b""
        assert (await review(port))["allowed"] is True


def test_the_limits_let_every_review_of_an_api_server_through() -> None:
    bodies = webhook_bodies()
    assert bodies.most_bytes > 2 * 3 * KIB * KIB  # of an object's 3 MiB, new and old
    assert bodies.most_bytes <= bodies.most_bytes_together
    assert IDLE_SECONDS > 90  # after which the API server closes idle connections itself


@pytest.mark.parametrize("host", ["10.1.2.3:8081", "ipuhub-webhooks.example", "[fd00::1]:8081"])
async def test_probes_are_answered_whatever_host_they_ask_for(host: str) -> None:
    async with (
        listening(build_runner(Health().app()), "127.0.0.1", 0) as port,
        aiohttp.ClientSession(headers={"Host": host}) as session,
    ):
        for page in ("healthz", "readyz"):
            async with session.get(f"http://127.0.0.1:{port}/{page}") as answer:
                assert answer.status == 200
