"""io: the nodes' endpoint for the API server: exec, attach and logs.

It listens on loopback with TLS and accepts only clients with the certificate that the cluster's CA
issued to the API server for this purpose.

Also connects a process to a WebSocket: the channels of `kubectl exec` and `attach`
(v5.channel.k8s.io).
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import WSMsgType, web

from devcluster.kubelet.nodes import LOOPBACK
from devcluster.processes.logclock import LogOptions, Stamps
from devcluster.status import StatusError
from ipuhub.certificates import self_signed
from ipuhub.concurrency import end_tasks
from ipuhub.process.connections import CountedSite
from ipuhub.process.health import build_runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from devcluster.processes.runtime import Container, ProcessRuntime
    from devcluster.processes.spawned import Spawned
    from ipuhub.kube.resources import Manifest

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
        await end_tasks(sending, receiving)
        if owns and not process.ended.is_set():
            process.signal_group(signal.SIGHUP)
            process.signal_group(signal.SIGTERM)
    await socket.close()


def status_of(code: int) -> dict[str, Any]:
    """The Status with the result of a command."""
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


CLIENT: Final = "kube-apiserver-kubelet-client"


class Endpoint:
    """Serves the processes of `runtime`; `find_pod(namespace, name)` gives the pod as known."""

    def __init__(self, ca_pem: str) -> None:
        own = self_signed("ipuhub-kubelet", LOOPBACK, datetime.now(UTC))
        self.certificate, self._key = own.certificate, own.key
        self._ca_pem, self.port = ca_pem, 0
        self._runtime: ProcessRuntime | None = None
        self._find_pod: Callable[[str, str], Manifest | None] = lambda _namespace, _name: None

    def serve(
        self, runtime: ProcessRuntime, find_pod: Callable[[str, str], Manifest | None]
    ) -> None:
        """Answer from now on."""
        self._runtime, self._find_pod = runtime, find_pod

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(middlewares=[_only_the_api_server])
        where = "/{namespace}/{pod}/{container}"
        app.router.add_get(f"/exec{where}", self._exec)
        app.router.add_get(f"/attach{where}", self._attach)
        app.router.add_get(f"/containerLogs{where}", self._logs)
        self._runner = build_runner(app, shutdown_seconds=1.0, handler_cancellation=True)
        await self._runner.setup()
        await CountedSite(self._runner, LOOPBACK, 0, self._context()).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self._ca_pem)
        with tempfile.NamedTemporaryFile() as file:  # ssl reads keys from files only
            Path(file.name).write_bytes(self._key + self.certificate)
            context.load_cert_chain(file.name)
        return context

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        container, query = self._running(request), request.query
        _require_socket(request)
        tty, stdin = query.get("tty") == "true", query.get("stdin") == "true"
        command = query.getall("command", [])
        if self._runtime is None or not command:
            raise web.HTTPBadRequest(text="you must specify at least 1 command for the container")
        try:
            process = await self._runtime.execute(container, command, tty=tty, stdin=stdin)
        except OSError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return await _open(request, process, owns=True)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        process = self._running(request).spawned
        _require_socket(request)
        if process is None:
            raise web.HTTPBadRequest(text="the container does not run")
        return await _open(request, process, owns=False)

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod, status = self._status(request)
        try:
            options = LogOptions.of(dict(request.query), datetime.now(UTC))
        except StatusError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        previous = options.previous
        run = status["restartCount"] - (1 if previous else 0)
        name = request.match_info["container"]
        if self._runtime is None or run < 0:
            owner = f"{pod['metadata']['name']}"
            raise web.HTTPBadRequest(
                text=f'previous terminated container "{name}" in pod "{owner}" not found'
            )
        path = self._runtime.log_of(pod["metadata"]["uid"], name, run)
        container = None if previous else self._runtime.find(status.get("containerID", ""))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await _write_log(response, path, options, container)
        await response.write_eof()
        return response

    def _running(self, request: web.Request) -> Container:
        _, status = self._status(request)
        identity, runtime = status.get("containerID", ""), self._runtime
        container = None if runtime is None else runtime.find(identity)
        if container is None or container.end is not None:
            raise web.HTTPBadRequest(
                text=f'container not found ("{request.match_info["container"]}"): it does not run'
            )
        return container

    def _status(self, request: web.Request) -> tuple[Manifest, dict[str, Any]]:
        names = request.match_info
        pod = self._find_pod(names["namespace"], names["pod"])
        status = (pod or {}).get("status") or {}
        for key in ("initContainerStatuses", "containerStatuses"):
            for container in status.get(key) or ():
                if pod is not None and container["name"] == names["container"]:
                    return pod, container
        raise web.HTTPNotFound(text=f'pod "{names["pod"]}" or its container is not on this node')


@web.middleware
async def _only_the_api_server(request: web.Request, handler: Any) -> web.StreamResponse:
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    names = [pair for group in (certificate or {}).get("subject", ()) for pair in group]
    if ("commonName", CLIENT) not in names or ("organizationName", "system:masters") not in names:
        raise web.HTTPForbidden(text="only the API server may ask")
    response: web.StreamResponse = await handler(request)
    return response


def _require_socket(request: web.Request) -> None:
    """Begin nothing for who cannot be given the streams of it."""
    if not web.WebSocketResponse(protocols=(PROTOCOL,)).can_prepare(request).ok:
        raise web.HTTPUpgradeRequired(text=f"a WebSocket of {PROTOCOL} is wanted")


async def _open(request: web.Request, process: Any, *, owns: bool) -> web.StreamResponse:
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=0)
    await socket.prepare(request)
    await join(socket, process, owns=owns)
    return socket


async def _write_log(
    response: web.StreamResponse, path: Path, options: LogOptions, container: Container | None
) -> None:
    """Write what is there and, to follow, what comes until the container ends."""
    fresh: asyncio.Queue[bytes] = asyncio.Queue()

    def sink(_number: int, data: bytes) -> None:
        fresh.put_nowait(data)

    spawned = container.spawned if container is not None else None
    follows = options.follow and spawned is not None
    data = path.read_bytes() if path.exists() else b""  # nothing comes between this
    if spawned is not None and follows:
        spawned.sinks.append(sink)  # and this
    stamps = Stamps(path, options)
    lines = stamps.chosen(data)
    if options.tail is not None:
        lines = lines[-options.tail :] if options.tail else []
    await response.write(b"".join(lines)[: options.limit])
    if spawned is None or not follows:
        return
    try:
        while not (spawned.ended.is_set() and fresh.empty()):
            try:
                async with asyncio.timeout(0.2):
                    await response.write(stamps.now(await fresh.get()))
            except TimeoutError:
                continue
    finally:
        spawned.sinks.remove(sink)
