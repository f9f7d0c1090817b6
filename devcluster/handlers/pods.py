"""io: what pods have below them: binding, eviction, log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from devcluster.handlers.handlers_streams import pass_log
from devcluster.handlers.podlog import check_started, choose_container, container_log, is_over
from devcluster.handlers.read import answer
from devcluster.requests import read_number, read_typed, write_options
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.status import bad_request, conflict
from devcluster.storage.deletion import parse_delete_options
from devcluster.storage.metadata import format_time
from devcluster.storage.objects import Target
from devcluster.storage.watchers import WatchRequest

if TYPE_CHECKING:
    from devcluster.api import Api
    from devcluster.requests import ApiRequest

PODS = BY_RESOURCE[("", "v1", "pods")]
_CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def bind(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a Binding: the pod belongs to a node from now on."""
    options = write_options(request.query)
    body = await read_typed(request.http, "v1", "Binding")
    body = await api.admitted.admit(request, body, options)
    name = request.path.name or body.get("metadata", {}).get("name", "")
    node = (body.get("target") or {}).get("name", "")
    if not node:
        raise bad_request('Binding "" is invalid: target.name: Required value')
    now = format_time(api.clock())

    def assign(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise conflict(PODS, name, why, "/binding")
        if pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise conflict(PODS, name, why, "/binding")
        uid = body.get("metadata", {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise conflict(PODS, name, "the UID in the binding is another one", "/binding")
        pod["spec"]["nodeName"] = node
        conditions = pod["status"].setdefault("conditions", [])
        conditions[:] = [c for c in conditions if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        conditions.append({**scheduled, "lastTransitionTime": now})
        return pod

    target = Target(PODS, request.path.namespace, name, "binding")
    api.objects.update(target, assign, options)
    return answer(orjson.dumps({**_CREATED, "code": 201}), request.http, code=201)


async def evict(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of an Eviction: a deletion with the options inside it."""
    body = await read_typed(request.http, "policy/v1", "Eviction")
    body = await api.admitted.admit(request, body, write_options(request.query))
    options = parse_delete_options(body.get("deleteOptions") or {}, request.query)
    api.objects.delete(PODS, request.path.namespace, request.path.name, options)
    return answer(orjson.dumps({**_CREATED, "code": 201}), request.http, code=201)


async def read_log(api: Api, request: ApiRequest) -> web.StreamResponse:
    """GET of a container's log; with follow=true as it grows, until the container ends."""
    namespace, name, query = request.path.namespace, request.path.name, request.query
    item = api.objects.get(PODS, namespace, name)
    container = query.get("container", "")
    node = api.nodes.address_of(item.body)
    if node is not None:
        container = choose_container(item.body, container)
        if query.get("previous") != "true":
            check_started(item.body, container)
        return await pass_log(api, request, node, container)
    text = container_log(item.body, container)
    tail = read_number(query, "tailLines")
    if tail is not None:
        text = "".join(text.splitlines(keepends=True)[-tail:] if tail else [])
    limit = read_number(query, "limitBytes")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    await response.prepare(request.http)
    await response.write(text.encode()[:limit])
    if query.get("follow") == "true" and not is_over(item.body, container):
        await _follow(api, request, response, container_log(item.body, container))
    await response.write_eof()
    return response


async def _follow(api: Api, request: ApiRequest, response: web.StreamResponse, seen: str) -> None:
    container, name = request.query.get("container", ""), request.path.name
    watch = WatchRequest(
        kind=PODS,
        namespace=request.path.namespace,
        revision=api.store.revision,
        matches=lambda body: bool(body["metadata"]["name"] == name),
        render=lambda item: item.data,
        bookmarks=False,
        seconds=24 * 3600.0,
    )
    async for lines in api.watchers.stream(watch):
        for line in lines.splitlines():
            pod = orjson.loads(line)["object"]
            text = container_log(pod, container)
            await response.write(text.removeprefix(seen).encode())
            seen = text
            if is_over(pod, container) or pod["metadata"].get("deletionTimestamp"):
                return
