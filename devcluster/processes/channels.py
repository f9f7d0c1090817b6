"""io: a process at a WebSocket: the channels of `kubectl exec` and `attach` (v5.channel.k8s.io)."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import WSMsgType

if TYPE_CHECKING:
    from aiohttp import web

    from devcluster.processes.spawned import Spawned

PROTOCOL: Final = "v5.channel.k8s.io"
_STDIN: Final = 0
_ERROR: Final = 3
_RESIZE: Final = 4
_CLOSE: Final = 255


async def join(socket: web.WebSocketResponse, process: Spawned, *, owns: bool) -> None:
    """Carry streams both ways until the process ends or the client goes.

    `owns`: the process was started for this client and is hung up when the client goes.
    """
    output: asyncio.Queue[bytes] = asyncio.Queue()

    def sink(number: int, data: bytes) -> None:
        output.put_nowait(bytes((number,)) + data)

    process.sinks.append(sink)
    if owns:
        process.read()
    sending = asyncio.create_task(_send(socket, process, output))
    receiving = asyncio.create_task(_receive(socket, process))
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        process.sinks.remove(sink)
        for task in (sending, receiving):
            task.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
        if owns and not process.ended.is_set():
            process.signal_group(signal.SIGHUP)
            process.signal_group(signal.SIGTERM)
    await socket.close()


def status_of(code: int) -> dict[str, Any]:
    """The Status that tells a client how its command ended."""
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    if code == 0:
        return {**head, "status": "Success"}
    return {
        **head,
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def _send(
    socket: web.WebSocketResponse, process: Spawned, output: asyncio.Queue[bytes]
) -> None:
    """Send output as it comes, and after all of it the status."""
    ending = asyncio.create_task(process.ended.wait())
    try:
        while not (process.ended.is_set() and output.empty()):
            getting = asyncio.create_task(output.get())
            await asyncio.wait({getting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                await socket.send_bytes(getting.result())
            else:
                getting.cancel()
    finally:
        ending.cancel()
    await socket.send_bytes(bytes((_ERROR,)) + orjson.dumps(status_of(process.code)))


async def _receive(socket: web.WebSocketResponse, process: Spawned) -> None:
    async for message in socket:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STDIN:
            await process.write(data)
        elif channel == _CLOSE and data[:1] == bytes((_STDIN,)):
            process.end_input()
        elif channel == _RESIZE:
            size = orjson.loads(data)
            process.resize(int(size.get("Width", 0)), int(size.get("Height", 0)))
