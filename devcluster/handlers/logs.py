"""io: container logs: of a simulated container from its pod, of a process from the pod's node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import web

from devcluster.handlers.pods import choose_container, unreachable
from devcluster.processes.logclock import LogOptions, stamp
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.standinlog import Run, StandInLog
from devcluster.status import StatusError, bad_request
from ipuhub.times import read_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from devcluster.context import Api
    from devcluster.nodelink import NodeAddress
    from devcluster.requests import ApiRequest

_PODS: Final = BY_RESOURCE[("", "v1", "pods")]
_FOLLOW_SECONDS: Final = 0.25
_BLOCK: Final = 64 * 1024


async def read_log(api: Api, request: ApiRequest) -> web.StreamResponse:
    """GET of a container's log; with follow=true as it grows, until the container ends."""
    namespace, name, query = request.path.namespace, request.path.name, request.query
    pod = api.objects.get(_PODS, namespace, name).body
    container = choose_container(pod, query.get("container", ""))
    node = api.nodes.address_of(pod)
    options = LogOptions.of(query, api.clock())
    if node is not None:
        if not options.previous:
            _run_of(pod, container, options)
        return await _pass_on(api, request, node, container)
    run = _run_of(pod, container, options)
    log = StandInLog(pod, container, run, api.clock())
    first = log.first_since(options.since) if options.since else 0
    if options.tail is not None:
        first = max(first, len(log) - options.tail)
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    await response.prepare(request.http)
    for block in _blocks(log, first, options):
        await response.write(block)
    if options.follow and run.ended is None:
        await _follow(api, request, response, options, container, len(log))
    await response.write_eof()
    return response


async def _follow(  # where it reads, where it writes, how, and from where on
    api: Api,
    request: ApiRequest,
    response: web.StreamResponse,
    options: LogOptions,
    container: str,
    seen: int,
) -> None:
    """Write what is new until the run has ended, or the pod is gone."""
    begun: datetime | None = None
    while True:
        await asyncio.sleep(_FOLLOW_SECONDS)
        try:
            pod = api.objects.get(_PODS, request.path.namespace, request.path.name).body
            run = _run_of(pod, container, options)
        except StatusError:
            return
        begun = begun or run.started
        if run.started != begun:
            return
        log = StandInLog(pod, container, run, api.clock())
        for block in _blocks(log, seen, options):
            await response.write(block)
        seen = max(seen, len(log))
        if run.ended is not None or pod["metadata"].get("deletionTimestamp"):
            return


def _blocks(log: StandInLog, first: int, options: LogOptions) -> Iterator[bytes]:
    """The lines from `first` on, at most `limit` bytes, in blocks."""
    remaining, block = options.limit, bytearray()
    for at, line in log.lines(first):
        before = stamp(at) if options.timestamps else ""
        block += f"{before}{line}\n".encode()
        if remaining is not None and len(block) >= remaining:
            yield bytes(block[:remaining])
            return
        if len(block) >= _BLOCK:
            yield bytes(block)
            remaining = None if remaining is None else remaining - len(block)
            block.clear()
    yield bytes(block)


def _run_of(pod: Mapping[str, Any], container: str, options: LogOptions) -> Run:
    """Return the run whose log is requested, as a kubelet chooses it. StatusError 400."""
    status = pod.get("status") or {}
    known = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    found: dict[str, Any] = next((entry for entry in known if entry["name"] == container), {})
    state, last = found.get("state") or {}, (found.get("lastState") or {}).get("terminated")
    name = pod["metadata"]["name"]
    if options.previous:
        if not last:
            raise bad_request(
                f'previous terminated container "{container}" in pod "{name}" not found'
            )
        return _ended(last)
    if state.get("running"):
        return Run(read_time(state["running"]["startedAt"]))
    if ended := state.get("terminated") or last:
        return _ended(ended)
    reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
    raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def _ended(state: Mapping[str, Any]) -> Run:
    began, ended = (read_time(state[key]) for key in ("startedAt", "finishedAt"))
    return Run(began, max(began, ended), int(state.get("exitCode", 0)))


async def _pass_on(
    api: Api, request: ApiRequest, address: NodeAddress, container: str
) -> web.StreamResponse:
    """Pass on the log that the pod's node keeps. StatusError 400, 500."""
    path = request.path
    where = f"/containerLogs/{path.namespace}/{path.name}/{container}"
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    try:
        async with api.nodes.get(address, where, request.query) as answer:
            if answer.status != 200:
                raise bad_request(await answer.text())
            response.enable_chunked_encoding()
            await response.prepare(request.http)
            async for data in answer.content.iter_any():
                await response.write(data)
    except (OSError, aiohttp.ClientError) as error:
        if response.prepared:
            raise
        raise unreachable(error) from error
    await response.write_eof()
    return response
