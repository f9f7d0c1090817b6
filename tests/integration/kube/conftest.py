"""A cluster to test against, and an API server that follows a script."""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from aiohttp import web

from ipuhub.backoff import Backoff
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ClusterConfig, load_config
from ipuhub.kube.resources import NAMESPACES
from ipuhub.kube.watch import Pace

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

BRISK = Pace(
    backoff=Backoff(0.001, 0.004), silence_seconds=20, server_seconds=20, healthy_seconds=0.0
)


@pytest.fixture(scope="session")
def cluster_kubeconfig(
    tmp_path_factory: pytest.TempPathFactory, given_cluster: str
) -> Iterator[Path]:
    """The cluster of IPUHUB_TEST_KUBECONFIG, else an embedded cluster for this run."""
    if given_cluster:
        yield Path(given_cluster)
        return
    from devcluster.server import DevCluster

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    cluster = DevCluster(tmp_path_factory.mktemp("devcluster"))
    asyncio.run_coroutine_threadsafe(cluster.start(), loop).result(90)
    yield cluster.kubeconfig
    asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(90)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
async def kube(cluster_kubeconfig: Path) -> AsyncIterator[KubeClient]:
    """An administrator's client of the cluster."""
    async with KubeClient(load_config(str(cluster_kubeconfig))) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    await kube.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await kube.delete(NAMESPACES, name, propagation="Background")


@dataclass
class Seen:
    """One request that the scripted server got."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer_certificate: Any = None


@dataclass
class ScriptedApi:
    """Answers plain requests and watches each from its own list of answers, in order.

    A watch beyond the script stays open and silent; any other request beyond it fails.
    """

    answers: list[Answer] = field(default_factory=list)
    watches: list[Answer] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        self.seen.append(
            Seen(
                request.method,
                request.path,
                dict(request.query),
                request.headers,
                await request.read(),
                transport.get_extra_info("peercert") if transport else None,
            )
        )
        script = self.watches if "watch" in request.query else self.answers
        if script:
            return await script.pop(0)(request)
        if "watch" in request.query:
            return await events(then=self.hang)(request)
        return web.json_response({"message": "beyond the script"}, status=500)

    async def hang(self, _: web.StreamResponse) -> None:
        """Keep a stream open until the test ends."""
        await self.stopping.wait()

    def watches_seen(self) -> list[Seen]:
        return [seen for seen in self.seen if "watch" in seen.query]

    @asynccontextmanager
    async def serve(self, context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedApi]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.stopping.set()
            await runner.cleanup()


def reply(body: Any, status: int = 200, **headers: str) -> Answer:
    """Answer with JSON; header names are written with underscores."""

    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def status(code: int, reason: str, **headers: str) -> Answer:
    """Answer with a Status object."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": f"{reason} by script"}
    return reply(body, code, **headers)


def page(*items: dict[str, Any], version: str = "100", token: str = "") -> Answer:
    """Answer with a list, or one page of it; items come as the API sends them, without a kind."""
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    bare = [{k: v for k, v in item.items() if k not in {"kind", "apiVersion"}} for item in items]
    return reply({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": bare})


def events(
    *lines: dict[str, Any] | bytes,
    then: Callable[[web.StreamResponse], Awaitable[None]] | None = None,
) -> Answer:
    """Answer with a watch stream; `then` decides how it ends (default: closed in order)."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for line in lines:
            await response.write(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n")
        if then is not None:
            await then(response)
        return response

    return answer


async def break_off(response: web.StreamResponse) -> None:
    """Cut the connection without ending the answer, as a dying server does."""
    transport = response._req.transport if response._req else None
    assert transport is not None
    transport.close()


def event(kind: str, manifest: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": manifest}


def bookmark(version: str) -> dict[str, Any]:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})


def gone_event() -> dict[str, Any]:
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"})


def pod(name: str, version: str, uid: str = "", **labels: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "x",
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "labels": labels,
        "managedFields": [{"manager": "somebody"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serve() as api:
        yield api


@pytest.fixture
async def client(api: ScriptedApi) -> AsyncIterator[KubeClient]:
    """A client of the scripted server."""
    async with KubeClient(ClusterConfig(api.url), timeout_seconds=20) as client:
        yield client
