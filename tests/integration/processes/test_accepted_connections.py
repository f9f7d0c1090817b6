"""Connections from their acceptance on: which make room for others, and which stay."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from itertools import islice
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ipuhub.process.connections import FOR_PROBES
from ipuhub.process.health import Limits
from tests.fakes.waiting import PATIENCE_SECONDS
from tests.integration.processes.test_unfinished_requests import (
    CLOSE,
    LARGE,
    PROBE,
    exchange,
    own_certificate,
    serving,
)

if TYPE_CHECKING:
    from pathlib import Path

BURST = """
import asyncio, os, ssl, sys
from pathlib import Path
from aiohttp import web
from ipuhub.process import runtime
from ipuhub.process.connections import FOR_PROBES, CountedRunner, CountedSite

MOST = 1  # so that some have to make room before they are open

def sockets():
    files = Path("/proc/self/fd").iterdir()
    return sum(os.readlink(each).startswith("socket:") for each in files if each.is_symlink())

async def serve(context):
    runner = CountedRunner(web.Application(), MOST, keepalive_timeout=600)
    await runner.setup()
    site = CountedSite(runner, "127.0.0.1", 0, context)
    await site.start()
    print(runner.addresses[0][1], MOST + FOR_PROBES, flush=True)
    before = sockets()
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(len(runner.server.connections), sockets() - before, flush=True)
    await runner.cleanup()

context = None
if sys.argv[2]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
(runtime if sys.argv[1] else asyncio).run(serve(context))
"""


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize("loop", ["", "uvloop"])
async def test_a_burst_keeps_exactly_as_many_connections_as_there_may_be(
    loop: str, with_tls: bool, tmp_path: Path
) -> None:
    """Those beyond end, all others stay, and nothing of them is left when they have gone."""
    if with_tls:
        own_certificate(tmp_path)
    command = [sys.executable, "-c", BURST, loop, str(tmp_path / "pem") if with_tls else ""]
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    commands, output = child.stdin, child.stdout

    async def counts(connections: int, sockets: int) -> None:
        """Wait until so many connections of HTTP, and sockets, are left."""
        found = -1, -1
        async with asyncio.timeout(PATIENCE_SECONDS):
            while found != (connections, sockets):
                commands.write(b"\n")
                line = await output.readline()
                found = int(line.split()[0]), int(line.split()[1])

    try:
        port, most = map(int, (await output.readline()).split())
        for number in (most, 3 * most):
            clients = await asyncio.gather(*(connect(port) for _ in range(number)))
            async with asyncio.timeout(PATIENCE_SECONDS):
                ends = [asyncio.create_task(reader.read()) for reader, _ in clients]
                for ended in islice(asyncio.as_completed(ends), number - most):
                    with suppress(ConnectionResetError):
                        assert await ended == b""
            await counts(0 if with_tls else most, most)  # a handshake is no HTTP yet
            for _, client in clients:
                client.close()
            await asyncio.wait(ends)
            await counts(0, 0)
    finally:
        commands.close()
        errors = await child.stderr.read()
        await child.wait()
    assert (child.returncode, errors) == (0, b"")


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def test_handshakes_that_failed_end_no_silent_connection(tmp_path: Path) -> None:
    trusting = ssl._create_unverified_context()
    async with serving(
        Limits(silence_seconds=600, connections=1), own_certificate(tmp_path)
    ) as port:
        kept = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        await answered(*kept)
        for _ in range(2 * FOR_PROBES):
            assert not (await exchange(port, PROBE)).startswith(b"HTTP")
        await answered(*kept)
        kept[1].close()


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask on a connection that stays, and read the answer."""
    writer.write(PROBE.replace(CLOSE, b""))
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")


async def test_silent_connections_make_room_before_one_whose_answer_is_being_sent() -> None:
    async with serving(Limits(silence_seconds=600, connections=1)) as port:
        reader, writer = await connect(port)
        writer.write(b"GET /large HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        silent = [await connect(port) for _ in range(2 * FOR_PROBES)]
        assert (await exchange(port, PROBE)).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(LARGE) == bytes(LARGE)
        for _, other in [*silent, (reader, writer)]:
            other.close()


async def test_a_server_that_ends_ends_handshakes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipuhub.process.connections.HANDSHAKE_SECONDS", 10 * PATIENCE_SECONDS)
    trusting = ssl._create_unverified_context()
    async with serving(Limits(), own_certificate(tmp_path)) as port:
        reader, writer = await connect(port)
        # Whoever connects later is accepted later.
        assert (await exchange(port, PROBE, trusting)).startswith(b"HTTP/1.1 200 OK")
    async with asyncio.timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


class UnluckySocket(socket.socket):
    """Accepts what is left by these errors, which are of connections that have ended already."""

    errors: ClassVar[list[int]] = []

    def accept(self) -> Any:
        if self.errors:
            error = self.errors.pop()
            raise OSError(error, os.strerror(error))
        return super().accept()


async def test_connections_that_end_before_they_are_accepted_end_no_silent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "socket", UnluckySocket)
    async with serving(Limits(silence_seconds=600)) as port:
        kept = await connect(port)
        await answered(*kept)
        UnluckySocket.errors += [errno.EPROTO, errno.ECONNABORTED, errno.ENETDOWN]
        assert (await exchange(port, PROBE)).startswith(b"HTTP/1.1 200 OK")
        assert not UnluckySocket.errors
        await answered(*kept)
        kept[1].close()


FEW_FILES = """
import asyncio, resource, sys
from ipuhub.process import runtime
from ipuhub.process.health import Health, Limits, build_runner, listening
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))

async def serve():
    limits = Limits(silence_seconds=600)
    async with listening(build_runner(Health().app(), limits=limits), "127.0.0.1", 0) as port:
        held = [open("/dev/null") for _ in range(int(sys.argv[1]))]
        print(port, resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)

(runtime if sys.argv[2:] else asyncio).run(serve())
"""


def few_files(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FEW_FILES, *arguments]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


@pytest.mark.parametrize("loop", [[], ["uvloop"]])
@pytest.mark.parametrize("others", [0, 100])
async def test_silent_connections_never_take_all_open_files(others: int, loop: list[str]) -> None:
    """`others`: files that the rest of the process has open, of the 128 that it may."""
    with few_files(str(others), *loop) as child:
        assert child.stdout is not None
        try:
            port, files = map(int, child.stdout.readline().split())
            assert files == 128  # all that the system allows
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
            assert (await exchange(port, PROBE)).startswith(b"HTTP/1.1 200 OK")
            for _, writer in silent:
                writer.close()
        finally:
            _, errors = child.communicate()
    assert child.returncode == 0
    assert errors.count("\n") == (1 if others else 0), errors
    assert ("raise the limit of open files" in errors) is bool(others)
