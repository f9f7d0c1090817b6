"""io: subresources of pods: binding, and exec and attach by WebSocket, which the pod's node
answers. Logs: `logs.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
from aiohttp import WSMsgType, web

from devcluster.handlers.read import answer
from devcluster.requests import read_typed, write_options
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.status import StatusError, bad_request, conflict
from devcluster.storage.objects import Target
from ipuhub.concurrency import end_tasks
from ipuhub.times import format_time

if TYPE_CHECKING:
    from devcluster.context import Api
    from devcluster.nodelink import NodeAddress
    from devcluster.requests import ApiRequest


def choose_container(pod: dict[str, Any], container: str) -> str:
    """Return the name of the container that is meant (empty: the only container). StatusError
    400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [c["name"] for c in spec["containers"]]
    initial = [c["name"] for c in spec.get("initContainers") or []]
    annotations = pod["metadata"].get("annotations") or {}
    if not container:
        container = annotations.get("kubectl.kubernetes.io/default-container", "")
    if not container and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: "
            f"[{' '.join(names)}]"
            + (f" or one of the init containers: [{' '.join(initial)}]" if initial else "")
        )
    container = container or names[0]
    if container not in names + initial:
        raise bad_request(f"container {container} is not valid for pod {name}")
    return container


PROTOCOL: Final = "v5.channel.k8s.io"
PODS: Final = BY_RESOURCE[("", "v1", "pods")]
_NO_PROCESSES: Final = (
    "this pod's node simulates its containers and runs no processes in them: start the stand-in "
    "nodes with `run_kubelet --processes DIR`, on a machine where pods may run commands"
)
_OLD_PROTOCOL: Final = (
    f"the embedded API carries streams by WebSocket ({PROTOCOL}) only: use kubectl 1.31 or newer "
    "(1.29 and 1.30: set KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true)"
)


async def stream(api: Api, request: ApiRequest) -> web.StreamResponse:
    """Exec in a container of a pod, or attach to it."""
    path, query = request.path, request.http.query
    pod = api.objects.get(PODS, path.namespace, path.name).body
    container = choose_container(pod, query.get("container", ""))
    address = api.nodes.address_of(pod)
    if address is None:
        raise StatusError(501, "NotImplemented", _NO_PROCESSES)
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=0)
    check = socket.can_prepare(request.http)
    where = f"/{path.subresource}/{path.namespace}/{path.name}/{container}"
    parameters = [(key, value) for key, value in query.items() if key != "container"]
    try:
        if not check.ok or check.protocol != PROTOCOL:
            raise await _explained(api, address, where)
        async with api.nodes.open_socket(address, where, parameters, PROTOCOL) as node:
            await socket.prepare(request.http)
            await _join(socket, node)
    except aiohttp.WSServerHandshakeError as error:
        raise await _explained(api, address, where) from error
    except (OSError, aiohttp.ClientError) as error:
        if socket.prepared:
            raise
        raise unreachable(error) from error
    return socket


async def _join(client: web.WebSocketResponse, node: aiohttp.ClientWebSocketResponse) -> None:
    """Carry messages both ways until either side ends."""
    both = {
        asyncio.create_task(_carry(client, node)),
        asyncio.create_task(_carry(node, client)),
    }
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*both)
        await node.close()
        await client.close()


async def _carry(source: Any, sink: Any) -> None:
    async for message in source:
        if message.type == WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type == WSMsgType.TEXT:
            await sink.send_str(message.data)


async def _explained(api: Api, address: NodeAddress, path: str) -> StatusError:
    """Return the node's reason for refusing, in its own words: a failed handshake does not carry
    them.

    It begins nothing for a request that is no WebSocket. Where it sees nothing wrong but that,
    the client's protocol is to blame.
    """
    async with api.nodes.get(address, path, ()) as answer:
        text = await answer.text()
    if answer.status == web.HTTPUpgradeRequired.status_code:
        return bad_request(_OLD_PROTOCOL)
    return StatusError(500, "InternalError", f"Internal error occurred: {text}")


def unreachable(error: Exception) -> StatusError:
    """Return the error of an API server that does not reach a node."""
    detail = f"error dialing backend: {error}"
    return StatusError(500, "InternalError", f"Internal error occurred: {detail}")


_CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def bind(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a Binding: the pod belongs to a node from now on."""
    options = write_options(request.query)
    body = await read_typed(request.http, "v1", "Binding")
    name = request.path.name or body.get("metadata", {}).get("name", "")
    node = (body.get("target") or {}).get("name", "")
    if not node:
        raise bad_request('Binding "" is invalid: target.name: Required value')
    now = format_time(api.clock())

    def assign(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["metadata"].get("deletionTimestamp"):
            reason = f"pod {name} is being deleted, cannot be assigned to a host"
            raise conflict(PODS, name, reason, "/binding")
        if pod["spec"].get("nodeName"):
            reason = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise conflict(PODS, name, reason, "/binding")
        uid = body.get("metadata", {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise conflict(PODS, name, "the UID in the binding is another pod's", "/binding")
        pod["spec"]["nodeName"] = node
        conditions = pod["status"].setdefault("conditions", [])
        conditions[:] = [c for c in conditions if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        conditions.append({**scheduled, "lastTransitionTime": now})
        return pod

    target = Target(PODS, request.path.namespace, name, "binding")
    api.objects.update(target, assign, options)
    return answer(orjson.dumps({**_CREATED, "code": 201}), request.http, code=201)
