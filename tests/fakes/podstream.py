"""An API server of generated pods over HTTP: lists, watches, and the truth about every pod.

Each pod is scheduled, runs, ends and is deleted; when, is a function of its number alone. History
can be cut (410), the server can go away and come back, and the cluster can be another cluster.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.heldport import HeldPort

EPOCH = datetime(2026, 10, 1, tzinfo=UTC)
_SNAPSHOTS = 8  # lists that are read at the same time, page by page
STEPS = ("ADDED", "RUNNING", "ENDED", "DELETED")


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Truth:
    """The right contents of a pod's row."""

    uid: str
    scheduled_at: datetime
    finished_at: datetime


def uid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def expected_row(number: int) -> Truth:
    scheduled = EPOCH + timedelta(seconds=7 * number)
    return Truth(uid_of(number), scheduled, scheduled + timedelta(seconds=60 + number % 977))


def pod_of(
    number: int, step: str, *, padding: int = 0, truth: Truth | None = None
) -> dict[str, Any]:
    """Return the manifest of pod `number` after `step`, with `padding` bytes that no reader
    uses."""
    truth, group = truth or expected_row(number), f"group-{number % 7}"
    usage = {"component": "job", "component_name": f"job-{number}", "group": group}
    usage |= {"instance_type": "small", "user": f"user-{number % 50}"}
    meta = {
        "name": f"pod-{number}",
        "namespace": f"team-{number % 3}",
        "uid": truth.uid,
        "creationTimestamp": stamp(truth.scheduled_at - timedelta(seconds=2)),
        "labels": {"app": "train", "team": group},
        "annotations": {"primehub.io/usage": orjson.dumps(usage).decode()},
    }
    gpus = {"nvidia.com/gpu": str(number % 2)}
    amounts = {"requests": {"cpu": "500m", "memory": "2Gi", **gpus}, "limits": gpus}
    env = [{"name": f"SEED_{n}", "value": f"{number}".ljust(60, "x")} for n in range(padding // 91)]
    container = {"name": "main", "image": "train:1", "resources": amounts}
    container |= {"env": env} if env else {}  # no two pods' wishes are the same
    status: dict[str, Any] = {"phase": "Pending"}
    started = stamp(truth.scheduled_at + timedelta(seconds=1))
    if step != "ADDED":
        status = {
            "phase": "Running",
            "startTime": stamp(truth.scheduled_at),
            "conditions": [condition("PodScheduled", truth.scheduled_at)],
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": started}}}],
        }
    if step in {"ENDED", "DELETED"}:
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": started}
        ended["finishedAt"] = stamp(truth.finished_at)
        state = {"terminated": ended}
        status |= {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "main", "state": state}],
        }
    spec = {"containers": [container], "nodeName": "" if step == "ADDED" else "node-1"}
    return {"metadata": meta, "spec": spec, "status": status}


def condition(kind: str, at: datetime, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": stamp(at)}


class PodStream:
    """Serves what `emit` says. `stop` and `start` restart it, `forget` cuts the history."""

    def __init__(self, cluster_uid: str = "cluster-1", padding: int = 0) -> None:
        self._held = HeldPort()
        self.port, self.cluster_uid, self.padding = self._held.number, cluster_uid, padding
        self.revision = 100
        self.oldest = 0
        self.log: list[tuple[int, bytes]] = []
        self.objects: dict[str, bytes] = {}
        self.lists = self.watches = self.sent = 0
        self.refuses_lists = self.is_hidden = False
        self._hung = 0
        self._news = asyncio.Condition()
        self._snapshots: dict[str, tuple[int, list[bytes]]] = {}
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> PodStream:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._held.close()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/kube-system", self._identity)
        app.router.add_get("/api/v1/pods", self._pods)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods", self._pods)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}", self._pod)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()

    async def stop(self) -> None:
        """Break every connection off, and take no new connections."""
        if self._runner is None:
            return
        self.break_off()
        runner, self._runner = self._runner, None
        await self.tell()
        await runner.cleanup()

    def break_off(self) -> None:
        """Abort every connection, as a killed server does: unread data is lost.

        Closing would wait until the client has read everything: forever, if it is held back.
        """
        assert self._runner is not None
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if isinstance(connection.transport, asyncio.Transport):  # None: it is gone already
                connection.transport.abort()

    def hang(self) -> None:
        """Say nothing any more on the watches that are open, and keep them open."""
        self._hung = self.watches

    async def emit(self, kind: str, manifest: dict[str, Any]) -> None:
        """Let an object appear, change or go; gives it the next version."""
        self.put(kind, manifest)
        await self.tell()

    def put(self, kind: str, manifest: dict[str, Any]) -> None:
        self.revision += 1
        manifest["metadata"]["resourceVersion"] = str(self.revision)
        content = orjson.dumps(manifest)
        if kind == "DELETED":
            self.objects.pop(manifest["metadata"]["uid"], None)
        else:
            self.objects[manifest["metadata"]["uid"]] = content
        self.put_line(b'{"type":"%s","object":%s}' % (kind.encode(), content))

    def put_line(self, line: bytes) -> None:
        """Add a line of the watch unchanged, at the present version."""
        self.log.append((self.revision, line + b"\n"))

    async def tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def bookmark(self) -> None:
        self.revision += 1
        found = {"kind": "Pod", "metadata": {"resourceVersion": str(self.revision)}}
        found |= {"spec": {"containers": None}, "status": {}}
        self.put_line(orjson.dumps({"type": "BOOKMARK", "object": found}))
        await self.tell()

    def step(self, number: int, step: str) -> None:
        """Take pod `number` one step on."""
        kind = step if step in {"ADDED", "DELETED"} else "MODIFIED"
        self.put(kind, pod_of(number, step, padding=self.padding))

    def forget(self) -> None:
        """Cut the history off here: older versions are answered 410."""
        self.oldest = self.revision
        self.log.clear()

    async def _identity(self, _: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "kube-system", "uid": self.cluster_uid}})

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        return await (self._watch if "watch" in request.query else self._list)(request)

    async def _list(self, request: web.Request) -> web.Response:
        if self.refuses_lists:
            raise web.HTTPServiceUnavailable
        limit, token = int(request.query.get("limit", "0")), request.query.get("continue")
        if limit != 1:
            self.lists += 1
        name, offset = token.split(":") if token else (str(self.revision), "0")
        if token and name not in self._snapshots:
            raise web.HTTPGone
        version, items = self._snapshots.pop(name, (self.revision, [*self.objects.values()]))
        self._snapshots[name] = (version, items)
        for oldest in [*self._snapshots][:-_SNAPSHOTS]:
            del self._snapshots[oldest]
        if namespace := request.match_info.get("namespace"):
            items = [one for one in items if _place(one)[0] == namespace]
        first = int(offset)
        last = first + limit if limit else len(items)
        meta = {"resourceVersion": str(version)}
        if last < len(items):
            meta["continue"] = f"{name}:{last}"
        body = b'{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[%s]}'
        content = body % (orjson.dumps(meta), b",".join(items[first:last]))
        return web.Response(body=content, content_type="application/json")

    async def _pod(self, request: web.Request) -> web.Response:
        if self.is_hidden:  # behind a gateway that knows no such path
            raise web.HTTPNotFound
        place = (request.match_info["namespace"], request.match_info["name"])
        for content in self.objects.values():
            if _place(content) == place:
                body = {"apiVersion": "v1", "kind": "Pod", **orjson.loads(content)}
                return web.json_response(body)
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
        status |= {"details": {"kind": "pods", "name": place[1]}}
        return web.json_response(status, status=404)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        since = int(request.query["resourceVersion"])
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if since < self.oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await answer.write(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")
            return answer
        with suppress(ConnectionError):
            await self._send(answer, since, self.watches)
        return answer

    async def _send(self, answer: web.StreamResponse, since: int, watch: int) -> None:
        log = self.log
        at = next((n for n, (version, _) in enumerate(log) if version > since), len(log))
        while True:
            while at < len(log) and watch > self._hung:
                part = [line for _, line in itertools.islice(log, at, at + 64)]
                at += len(part)
                await answer.write(b"".join(part))
                self.sent += len(part)
            async with self._news:
                while (at >= len(log) or watch <= self._hung) and self._runner is not None:
                    await self._news.wait()
            if self._runner is None:
                return


def _place(content: bytes) -> tuple[str, str]:
    meta = orjson.loads(content)["metadata"]
    return meta["namespace"], meta["name"]
