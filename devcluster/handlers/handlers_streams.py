"""io: exec and attach by WebSocket, and the logs of processes, passed on to the pod's node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import WSMsgType, web

from devcluster.handlers.podlog import choose_container
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.status import StatusError, bad_request

if TYPE_CHECKING:
    from devcluster.api import Api
    from devcluster.nodelink import NodeAddress
    from devcluster.requests import ApiRequest

PROTOCOL: Final = "v5.channel.k8s.io"
_PODS: Final = BY_RESOURCE[("", "v1", "pods")]
_NO_PROCESSES: Final = (
    "this pod's node simulates its containers and runs no processes in them: start the stand-in "
    "nodes with `run_kubelet --processes DIR`, on a machine where pods may run commands"
)
_OLD_PROTOCOL: Final = (
    f"the embedded API carries streams by WebSocket ({PROTOCOL}) only: use kubectl 1.31 or newer "
    "(1.29 and 1.30: set KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true)"
)
_LOG_OPTIONS: Final = {"container", "follow", "previous", "tailLines", "limitBytes", "pretty"}


async def stream(api: Api, request: ApiRequest) -> web.StreamResponse:
    """Exec in a container of a pod, or attach to it."""
    path, query = request.path, request.http.query
    pod = api.objects.get(_PODS, path.namespace, path.name).body
    container = choose_container(pod, query.get("container", ""))
    address = api.nodes.address_of(pod)
    if address is None:
        raise StatusError(501, "NotImplemented", _NO_PROCESSES)
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=0)
    check = socket.can_prepare(request.http)
    where = f"/{path.subresource}/{path.namespace}/{path.name}/{container}"
    asked = [(key, value) for key, value in query.items() if key != "container"]
    try:
        if not check.ok or check.protocol != PROTOCOL:
            raise await _explained(api, address, where)
        async with api.nodes.open_socket(address, where, asked, PROTOCOL) as node:
            await socket.prepare(request.http)
            await _join(socket, node)
    except aiohttp.WSServerHandshakeError as error:
        raise await _explained(api, address, where) from error
    except (OSError, aiohttp.ClientError) as error:
        if socket.prepared:
            raise
        raise _unreachable(error) from error
    return socket


async def pass_log(
    api: Api, request: ApiRequest, address: NodeAddress, container: str
) -> web.StreamResponse:
    """Pass on the log that the pod's node keeps. StatusError 400, 500."""
    query, path = request.query, request.path
    unknown = sorted(set(query) - _LOG_OPTIONS)
    if unknown:
        raise bad_request(f"logs of processes cannot be cut by {', '.join(unknown)}")
    where = f"/containerLogs/{path.namespace}/{path.name}/{container}"
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    try:
        async with api.nodes.get(address, where, query) as answer:
            if answer.status != 200:
                raise bad_request(await answer.text())
            response.enable_chunked_encoding()
            await response.prepare(request.http)
            async for data in answer.content.iter_any():
                await response.write(data)
    except (OSError, aiohttp.ClientError) as error:
        if response.prepared:
            raise
        raise _unreachable(error) from error
    await response.write_eof()
    return response


async def _join(client: web.WebSocketResponse, node: aiohttp.ClientWebSocketResponse) -> None:
    """Carry messages both ways until either side ends."""
    both = {
        asyncio.create_task(_carry(client, node)),
        asyncio.create_task(_carry(node, client)),
    }
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await node.close()
        await client.close()


async def _carry(source: Any, sink: Any) -> None:
    async for message in source:
        if message.type == WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type == WSMsgType.TEXT:
            await sink.send_str(message.data)


async def _explained(api: Api, address: NodeAddress, path: str) -> StatusError:
    """Why the node refuses, in its own words: a failed handshake does not carry them.

    It begins nothing for a request that is no WebSocket. Where it sees nothing wrong but that,
    the client's protocol is to blame.
    """
    async with api.nodes.get(address, path, ()) as answer:
        text = await answer.text()
    if answer.status == web.HTTPUpgradeRequired.status_code:
        return bad_request(_OLD_PROTOCOL)
    return StatusError(500, "InternalError", f"Internal error occurred: {text}")


def _unreachable(error: Exception) -> StatusError:
    why = f"error dialing backend: {error}"
    return StatusError(500, "InternalError", f"Internal error occurred: {why}")
