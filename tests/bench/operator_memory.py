"""Memory of a real operator process with thousands of jobs, all of them running.

The API server and the proxy are stand-ins that hold ready-made answers: lists in pages, watches
that stay silent until they expire. The objects are those that the operator itself builds, with the
status that its own plan asks for, and as large as on a cluster (managedFields, a kubelet's status).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from aiohttp import web

from devcluster.demo.supervisor import Process, Supervisor
from jobs.ipujob.names import RESOURCE_OF, Kind
from jobs.operator.actions import CreateChild, PatchStatus
from jobs.operator.plan import plan
from tests.bench.jobtimes import job_manifest
from tests.bench.surroundings import METRICS_TOKEN
from tests.builders.ipujobs import NOW, launcher, observed, partition, worker
from tests.e2e.running_demo import ROOT
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    import argparse

_WORKERS = 3
_NAMESPACES = 50
_PAGE = 200  # as the operator asks for
_MANAGED = [{"manager": "m", "fieldsV1": {f"f:{n}": {"f:value": {}} for n in range(60)}}] * 2


@dataclass
class StandIn:
    """An API server and a proxy of ready-made answers; `expire` ends all watches with 410."""

    lists: dict[str, list[bytes]]
    partitions: bytes
    calls: list[str] = field(default_factory=list)
    expire: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A page, a watch, or the partitions."""
        if request.path == "/v1/partitions":
            known = request.headers.get("If-None-Match") == '"1"'
            answer = web.Response(status=304) if known else json_of(self.partitions)
            answer.headers["ETag"] = '"1"'
            return answer
        plural = request.path.rsplit("/", 1)[-1]
        if request.method != "GET" or plural not in self.lists:
            self.calls.append(f"{request.method} {request.path}")
            return web.Response(status=403)
        if "watch" in request.query:
            return await self._watch(request)
        page = int(request.query.get("continue") or 0)
        pages = self.lists[plural]
        more = str(page + 1) if page + 1 < len(pages) else ""
        meta = orjson.dumps({"resourceVersion": "9", "continue": more})
        return json_of(b'{"metadata":' + meta + b',"items":[' + pages[page] + b"]}")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await self.expire.wait()
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        with contextlib.suppress(ConnectionError):  # it has given up waiting
            await answer.write(orjson.dumps({"type": "ERROR", "object": gone}) + b"\n")
        return answer


def json_of(body: bytes) -> web.Response:
    """Answer with JSON."""
    return web.Response(body=body, content_type="application/json")


def run(options: argparse.Namespace) -> None:
    """Print the resident memory with full caches, and after each of some lists."""
    asyncio.run(_run(options.jobs, options.relists))


async def _run(jobs: int, relists: int) -> None:
    stand_in = filled(jobs)
    port, health = (free_port() for _ in range(2))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stand_in.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    with tempfile.TemporaryDirectory() as folder:
        supervisor = Supervisor(output=lambda line: print(line, file=sys.stderr))
        supervisor.start(operator(Path(folder), port, health))
        try:
            await until_at_rest(health, jobs)
            pid = supervisor.pid("operator") or 0
            print(f"{jobs} jobs, {jobs * (_WORKERS + 1)} pods; resident MiB (peak)")
            print(f"  full caches{'':<24} {resident(pid)}", flush=True)
            for number in range(relists):
                expired, stand_in.expire = stand_in.expire, asyncio.Event()
                expired.set()
                await asyncio.sleep(10)
                await until_at_rest(health, jobs)
                print(f"  after list {number + 2:<24} {resident(pid)}", flush=True)
        finally:
            await supervisor.stop()
            await runner.cleanup()
    if stand_in.calls:
        print(f"  it was not at rest: {len(stand_in.calls)} calls, {stand_in.calls[:3]}")


def operator(folder: Path, port: int, health: int) -> Process:
    """The operator's own process against the stand-in."""
    server = f"http://127.0.0.1:{port}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (folder / "kubeconfig").write_bytes(orjson.dumps(config))
    environment = {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "IPUHUB_PROXY_URL": server,
        "IPUHUB_PROXY_TOKEN": "bench",
        "IPUHUB_LEADER_ELECTION": "false",
        "IPUHUB_HEALTH_PORT": str(health),
        "IPUHUB_METRICS_TOKEN": METRICS_TOKEN,
    }
    return Process(
        "operator", [sys.executable, str(ROOT / "manage.py"), "run_operator"], environment
    )


async def until_at_rest(health: int, jobs: int) -> None:
    """Wait until the caches are full and no job is due."""
    headers = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    wanted = f'ipuhub_watch_objects{{resource="pods"}} {jobs * (_WORKERS + 1)}.0'
    idle = [f'ipuhub_operator_queue_depth{{state="{state}"}} 0.0' for state in ("due", "active")]
    url = f"http://127.0.0.1:{health}/metrics"
    async with asyncio.timeout(600), aiohttp.ClientSession(headers=headers) as session:
        while True:
            await asyncio.sleep(1)
            try:
                async with session.get(url) as answer:
                    text = await answer.text()
            except aiohttp.ClientError:
                continue
            if all(line in text for line in (wanted, *idle)):
                return


def resident(pid: int) -> str:
    """Resident and peak memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = dict(line.split(":", 1) for line in status.splitlines())
    now, peak = (int(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return f"{now:.0f} ({peak:.0f})"


def filled(jobs: int) -> StandIn:
    """The stand-in with that many running jobs."""
    items: dict[str, list[bytes]] = {r.plural: [] for r in RESOURCE_OF.values()}
    items |= {"ipujobs": [], "namespaces": []}
    held = []
    for number in range(_NAMESPACES):
        items["namespaces"].append(stored({"metadata": {"name": f"team-{number}"}}, f"ns{number}"))
    for number in range(jobs):
        namespace, name = f"team-{number % _NAMESPACES}", f"training-{number}"
        job = job_manifest(namespace, name, launcher=True)
        job["spec"]["workers"]["replicas"] = _WORKERS
        job["metadata"] |= {"uid": uid_of(f"j{number}"), "generation": 1}
        job["metadata"]["creationTimestamp"] = "2026-03-01T11:00:00Z"
        fresh = observed(job, partitions=(partition(),))
        for action in plan(fresh, NOW).actions:
            if isinstance(action, CreateChild):
                made = copy.deepcopy(action.manifest)
                if action.kind is Kind.POD:
                    made["spec"]["nodeName"] = f"node-{number % 100}"
                    made["status"] = pod_status()
                plural = RESOURCE_OF[action.kind].plural
                items[plural].append(stored(made, f"{made['metadata']['name']}{plural}"))
        settle(job)
        items["ipujobs"].append(stored(job, f"j{number}"))
        held.append(record(job))
    pages = {
        plural: [b",".join(found[n : n + _PAGE]) for n in range(0, max(len(found), 1), _PAGE)]
        for plural, found in items.items()
    }
    return StandIn(pages, orjson.dumps({"items": held}))


def settle(job: dict[str, Any]) -> None:
    """Give the job the status that its own plan asks for when all its pods run."""
    pods = [worker(job, number).running() for number in range(_WORKERS)]
    pods.append(launcher(job).running())
    for _ in range(3):
        seen = observed(job, *pods, partitions=(partition(),), with_children=True)
        for action in plan(seen, NOW).actions:
            if isinstance(action, PatchStatus):
                job["status"] = job.get("status", {}) | action.status


def stored(manifest: dict[str, Any], identity: str) -> bytes:
    """The object as a server keeps it."""
    meta = {"uid": uid_of(identity), "resourceVersion": "5", "managedFields": _MANAGED}
    manifest["metadata"] = meta | manifest["metadata"]
    return orjson.dumps(manifest)


def uid_of(identity: str) -> str:
    """A UID of the usual length."""
    return f"{identity:0>36}"[-36:]


def pod_status() -> dict[str, Any]:
    """Return the status that a kubelet writes for a running pod."""
    at = "2026-03-01T11:59:00Z"
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": at,
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": k, "status": "True", "lastTransitionTime": at} for k in kinds],
        "containerStatuses": [
            {
                "name": "mnist-training",
                "image": "graphcore/pytorch:latest",
                "imageID": "sha256:" + "0" * 64,
                "containerID": "containerd://" + "0" * 64,
                "ready": True,
                "started": True,
                "state": {"running": {"startedAt": at}},
            }
        ],
    }


def record(job: dict[str, Any]) -> dict[str, Any]:
    """Return the proxy's record of the job's partition."""
    meta, held = job["metadata"], partition()
    return {
        "uid": meta["uid"],
        "namespace": meta["namespace"],
        "name": meta["name"],
        "instance": 0,
        "attempt": 0,
        "id": held.id,
        "size": held.size,
        "phase": "active",
        "controller": held.controller,
        "nodeSelector": dict(held.node_selector),
        "reason": "",
        "message": "",
        "needed": 0,
        "free": 0,
        "reservedAt": "2026-03-01T11:00:00Z",
        "activeAt": "2026-03-01T11:00:01Z",
        "releasedAt": None,
        "key": f"{meta['uid']}.0.0",
    }
