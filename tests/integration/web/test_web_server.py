"""The web server alone: deadlines of heads and bodies, probes beside the pool, slow readers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.webserver.responsebuffer import IN_MEMORY_BYTES, Budget, ReaderGone, ResponseBuffer
from ipuhub.webserver.server import Limits, ReservedThreads, WebServer
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

MEBIBYTE = 2**20
CALL = "/api/v1/jobs"


class Site:
    """A WSGI application: `/slow` waits for `go`, `/file` streams, anything else tells the size of
    the body it was sent."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.made = threading.Event()
        self.closed = threading.Event()
        self.blocks = 40

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] in {"/slow", "/readyz"}:
            self.go.wait(60)
        if environ["PATH_INFO"] == "/file":
            start("200 OK", [("Content-Type", "text/csv")])
            return self._file()
        body = f"{environ['REQUEST_METHOD']} {len(environ['wsgi.input'].read())}".encode()
        body += f" {environ.get('HTTP_X_TOLD', '')} {environ['QUERY_STRING']}".encode()
        start(
            "200 OK", [("Content-Length", str(len(body))), ("Set-Cookie", "a"), ("Set-Cookie", "b")]
        )
        return [body]

    def _file(self) -> Iterable[bytes]:
        try:
            yield b"first\n"
            for _ in range(self.blocks):
                yield b"x" * MEBIBYTE
            self.made.set()
        finally:
            self.closed.set()


@asynccontextmanager
async def serving(site: Site, probe_seconds: float = 0.2, **limits: Any) -> AsyncIterator[int]:
    """Yield the port of a server with two threads, and one for probes."""
    asides = {"/readyz": ReservedThreads(1, probe_seconds, "postgres: does not answer")}
    server = WebServer(site, Limits(**{"threads": 2, **limits}), asides, {"/healthz": "ok"})
    try:
        yield await server.start("127.0.0.1", 0)
    finally:
        site.go.set()
        await server.stop()


async def exchange(port: int, *lines: str, body: bytes = b"") -> str:
    """Return the server's answer to a request with `Connection: close`, to the end of the
    connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "\r\n".join([*lines, "Host: x", "Connection: close", "", ""])
    writer.write(head.encode() + body)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer.decode()


def problem_in(answer: str, status: int) -> str:
    """The kind of the problem that an answer has, as programs expect it of the API."""
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "Content-Type: application/problem+json" in head
    problem = json.loads(body)
    assert problem["status"] == status
    return str(problem["type"].removeprefix("urn:ipuhub:problem:"))


@pytest.mark.parametrize("coding", ["length", "chunks", "expected"])
async def test_a_body_is_whole_before_a_thread_sees_it(coding: str) -> None:
    lines, body = ["POST /?a=%20b HTTP/1.1", "X-Told: yes", "X_Told: no"], b"hello"
    if coding == "length":
        lines += ["Content-Length: 5"]
    else:
        lines += ["Transfer-Encoding: chunked"]
        body = b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    lines += ["Expect: 100-continue"] if coding == "expected" else []
    async with serving(Site()) as port:
        answer = await exchange(port, *lines, body=body)
    assert answer.endswith("POST 5 yes a=%20b")
    assert answer.count("Set-Cookie: ") == 2
    assert answer.startswith("HTTP/1.1 100 Continue") == (coding == "expected")


async def test_head_has_the_length_and_no_body() -> None:
    async with serving(Site()) as port:
        answer = await exchange(port, "HEAD / HTTP/1.1")
    assert "Content-Length: 8\r\n" in answer
    assert answer.endswith("\r\n\r\n")


class TwoProbes(Site):
    """A site whose first probe ends at `first`; later probes wait for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.running = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not self.running.is_set():
            self.running.set()
            self.first.wait(60)
            start("200 OK", [("Content-Length", "0")])
            return []
        return super().__call__(environ, start)


async def test_a_probe_is_answered_within_the_same_time_though_it_waits() -> None:
    site, loop = TwoProbes(), asyncio.get_running_loop()
    probe = "GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    async with serving(site, probe_seconds=1.0, body_seconds=5.0) as port:
        first = asyncio.create_task(exchange(port, "GET /readyz HTTP/1.1"))
        await asyncio.to_thread(site.running.wait)
        second = asyncio.create_task(exchange(port, "GET /readyz HTTP/1.1"))
        slow, endless = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in (slow, endless):
            writer.write(probe.encode())
        freed = asyncio.Event()
        loop.call_later(0.6, lambda: (site.first.set(), freed.set()))
        await freed.wait()
        began = loop.time()
        slow[1].write(b"body")
        assert "503" in (await second).splitlines()[0]
        assert loop.time() - began < 1.0, "its time began anew with the thread"
        assert b" 503 " in await slow[0].readline()
        assert loop.time() - began < 1.0, "its time began with the end of its body"
        assert b" 408 " in await endless[0].readline()
        assert loop.time() - began < 1.0, "its body had the time of any request"
        for _, writer in (slow, endless):
            writer.close()
        await first


async def test_an_unfinished_body_is_refused_in_time_and_a_head_ended() -> None:
    async with serving(Site(), body_seconds=0.2, head_seconds=0.2) as port:
        half = await exchange(port, "POST / HTTP/1.1", "Content-Length: 9", body=b"half")
        assert half.startswith("HTTP/1.1 408 ")
        half = await exchange(port, f"POST {CALL} HTTP/1.1", "Content-Length: 9", body=b"half")
        assert problem_in(half, 408) == "body-too-slow"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HT")
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_body_that_is_too_large_is_refused(is_told: bool) -> None:
    body, line = b"x" * 2000, "Content-Length: 2000"
    if not is_told:
        body, line = b"7d0\r\n" + body + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked"
    async with serving(Site(), body_bytes=1000) as port:
        assert (await exchange(port, "POST / HTTP/1.1", line, body=body)).startswith(
            "HTTP/1.1 413 "
        )
        refused = await exchange(port, f"POST {CALL} HTTP/1.1", line, body=body)
        assert problem_in(refused, 413) == "body-too-large"


async def test_probes_answer_while_every_thread_is_busy_and_others_are_told_to_come_again() -> None:
    site = Site()
    async with serving(site, queue_seconds=0.2) as port:
        busy = [asyncio.create_task(exchange(port, "GET /slow HTTP/1.1")) for _ in range(2)]
        refused = ""
        while not refused.startswith("HTTP/1.1 503"):
            refused = await exchange(port, "GET / HTTP/1.1")
        assert "Retry-After: 5" in refused
        assert problem_in(await exchange(port, f"GET {CALL} HTTP/1.1"), 503) == "server-busy"
        assert (await exchange(port, "GET /healthz HTTP/1.1")).endswith("ok")
        unready = await exchange(port, "GET /readyz HTTP/1.1")
        assert unready.startswith("HTTP/1.1 503")
        assert unready.endswith("postgres: does not answer\n")
        site.go.set()
        assert {answer[:12] for answer in await asyncio.gather(*busy)} == {"HTTP/1.1 200"}


async def open_ones(port: int, count: int, said_first: bytes = b"") -> list[Any]:
    """Connections, each of which has said something."""
    found = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said_first)
        found.append((reader, writer))
    return found


async def test_a_crowd_of_silent_connections_gives_way_to_who_asks() -> None:
    async with serving(Site(), connections=4, head_seconds=600) as port:
        crowd = await open_ones(port, 100)
        assert (await exchange(port, "GET / HTTP/1.1")).startswith("HTTP/1.1 200")
        gone = [asyncio.create_task(_is_ended(reader)) for reader, _ in crowd[: 100 - 4 - 16]]
        assert all(await asyncio.wait_for(asyncio.gather(*gone), 60))
        crowd[-1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(crowd[-1][0].read(12), 60)) == b"HTTP/1.1 200"
        for _, writer in crowd:
            writer.close()


async def _is_ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_beyond_the_connections_with_a_request_only_probes_are_answered() -> None:
    half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    async with serving(Site(), connections=4, body_seconds=600) as port:
        busy = await open_ones(port, 4, half)
        for reader, _ in busy:  # the server waits for their bodies
            assert (await asyncio.wait_for(reader.read(12), 60)) == b"HTTP/1.1 100"
        refused = await exchange(port, "GET / HTTP/1.1")
        assert refused.startswith("HTTP/1.1 503")
        assert "Retry-After: 5" in refused
        assert problem_in(await exchange(port, f"GET {CALL} HTTP/1.1"), 503) == "server-busy"
        silent = await open_ones(port, 60)
        assert (await exchange(port, "GET /healthz HTTP/1.1")).endswith("ok")
        busy[0][1].write(b"x" * 9)
        assert (await asyncio.wait_for(busy[0][0].readuntil(b"POST 9 "), 60)).endswith(b"POST 9 ")
        assert (await exchange(port, "GET / HTTP/1.1")).startswith("HTTP/1.1 200")
        for _, writer in [*busy, *silent]:
            writer.close()


async def reader_of(port: int) -> socket.socket:
    """The connection of a client that requested the file and has read its first line."""

    def ask() -> socket.socket:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(60)
        one.connect(("127.0.0.1", port))
        one.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")
        assert one.recv(12) == b"HTTP/1.1 200"
        return one

    return await asyncio.to_thread(ask)


async def test_a_slow_reader_holds_no_thread_once_the_file_is_made() -> None:
    site = Site()
    async with serving(site, ahead_bytes=8 * 41 * MEBIBYTE) as port:
        reader = await reader_of(port)
        assert await asyncio.to_thread(site.made.wait, 60)
        reader.close()


async def test_a_reader_beyond_the_space_slows_his_own_file_only_and_is_cut_off() -> None:
    site = Site()
    async with serving(site, ahead_bytes=8 * MEBIBYTE, unread_seconds=0.5) as port:
        reader = await reader_of(port)
        assert await asyncio.to_thread(site.closed.wait, 60)  # his thread is free again
        assert not site.made.is_set()
        reader.close()


async def test_a_reader_who_leaves_ends_the_making() -> None:
    site = Site()
    async with serving(site, ahead_bytes=0) as port:
        (await reader_of(port)).close()
        assert await asyncio.to_thread(site.closed.wait, 60)
        assert not site.made.is_set()


async def test_a_file_comes_whole() -> None:
    site = Site()
    async with serving(site, ahead_bytes=8 * MEBIBYTE) as port:
        answer = await exchange(port, "GET /file HTTP/1.0")
    assert answer.partition("first\n")[2].count("x") == site.blocks * MEBIBYTE


def test_what_is_ahead_is_given_back_to_the_others() -> None:
    budget = Budget(8 * MEBIBYTE)
    flow = ResponseBuffer(budget, lambda: None)
    flow.put(b"a" * IN_MEMORY_BYTES)
    assert budget.remaining == 8 * MEBIBYTE
    flow.put(b"b" * IN_MEMORY_BYTES)
    assert budget.remaining == 8 * MEBIBYTE - IN_MEMORY_BYTES
    taken = b""
    while block := flow.take():
        taken += block
    assert taken == b"a" * IN_MEMORY_BYTES + b"b" * IN_MEMORY_BYTES
    assert budget.remaining == 8 * MEBIBYTE
    flow.put(b"c" * MEBIBYTE)
    flow.leave()
    assert budget.remaining == 8 * MEBIBYTE
    with pytest.raises(ReaderGone):
        flow.put(b"d")


def test_who_waits_for_space_goes_on_as_the_reader_takes() -> None:
    flow = ResponseBuffer(Budget(0), lambda: None)
    flow.put(b"a" * IN_MEMORY_BYTES)
    maker = threading.Thread(target=flow.put, args=(b"b",))
    maker.start()
    wait_until(lambda: flow.take() == b"b", "the block that waited")
    maker.join()
