"""io: process mode: runs containers as processes on this machine and records their results."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import structlog

from devcluster.kubelet.life import End
from devcluster.processes import spawned as sandbox
from devcluster.processes.logclock import LogClock
from devcluster.processes.podfiles import PodFiles, build_env, expand, host_name
from devcluster.processes.spawned import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from devcluster.kubelet.world import World
    from devcluster.processes.spawned import Spawned
    from ipuhub.kube.resources import Manifest

log = structlog.get_logger(__name__)
_LOST: Final = 137
_CANNOT_START: Final = 128
_TAIL: Final = 2048


@cache
def can_isolate() -> bool:
    """Return whether this machine lets us make namespaces of users, mounts and host names."""
    tools = all(shutil.which(name) for name in ("unshare", "nsenter", "setpriv", "hostname"))
    command = [*sandbox.OWN_NAMESPACES, "true"]
    if not tools:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


@dataclass
class Container:
    """One run of a container."""

    id: str
    spec: Mapping[str, Any]
    files: PodFiles
    log: Path
    env: dict[str, str]
    spawned: Spawned | None = None
    end: End | None = None
    signals: set[int] = field(default_factory=set)
    waiter: asyncio.Task[None] | None = None
    beside: list[Spawned] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Its working directory."""
        return self.spec.get("workingDir") or str(self.files.folder / "work")


class ProcessRuntime:
    """The processes of all pods of these nodes, with folders below `folder`.

    `server` is the API server's URL, as processes in pods are to reach it.
    """

    def __init__(self, world: World, folder: Path, server: str) -> None:
        self._world, self._folder, self._server = world, folder, server
        self._on_end: Callable[[Manifest], None] = lambda _pod: None
        self._pods: dict[str, PodFiles] = {}
        self._containers: dict[str, Container] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def prepare(self, pod: Manifest, ips: Mapping[str, str]) -> None:
        """Make the pod's folder and volumes, once; what they show of the pod follows it. Raises
        MissingError, ApiError."""
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            self._pods[uid].show(pod)
            return
        files = PodFiles(self._world.client, self._folder / "pods" / uid, pod, ips)
        await files.prepare()
        for container in files.containers():
            build_env(pod, container, files.look_up, ips)
        self._pods[uid] = files

    def ends_of(self, status: Mapping[str, Any], now: datetime) -> dict[str, End]:
        """Return how a pod's containers ended, by containerID; an unknown run counts as lost."""
        ends: dict[str, End] = {}
        for key in ("initContainerStatuses", "containerStatuses"):
            for container in status.get(key) or ():
                found = self._containers.get(container.get("containerID", ""))
                if found is not None and found.end is not None:
                    ends[found.id] = found.end
                elif found is None and "running" in container["state"]:
                    ends[container.get("containerID", "")] = End(
                        _LOST, now, "the node was restarted"
                    )
        return ends

    async def start(self, pod: Manifest, status: Mapping[str, Any]) -> None:
        """Start the container whose status says that it runs, unless it was started."""
        identity, files = status["containerID"], self._pods[pod["metadata"]["uid"]]
        if identity in self._containers:
            return
        spec = next(c for c in files.containers() if c["name"] == status["name"])
        path = files.folder / "logs" / status["name"] / f"{status['restartCount']}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        container = Container(identity, spec, files, path, self._environment(pod, spec, files))
        self._containers[identity] = container
        command = [expand(p, container.env) for p in _command_of(spec)]
        file = path.open("ab", buffering=0)
        work = files.folder / "mounts" / status["name"]
        (files.folder / "tmp" / status["name"]).mkdir(parents=True, exist_ok=True)
        place = sandbox.Place(container.folder, str(work), host_name(pod))
        line = sandbox.container_command(
            command, files.mounts(spec), place, is_isolated=can_isolate()
        )
        try:
            if not command:
                raise OSError("no command: process mode has no images that could bring a command")
            tty, stdin = bool(spec.get("tty")), bool(spec.get("stdin"))
            container.spawned = await spawn(line, container.env, tty=tty, stdin=stdin)
        except OSError as error:
            file.write(f"{error}\n".encode())
            file.close()
            container.end = End(_CANNOT_START, self._world.now(), str(error))
            self._on_end(pod)
            return
        clock = LogClock(path, self._world.now)
        container.spawned.read(lambda _number, data: _keep(file, clock, data), ends_group=True)
        container.waiter = asyncio.create_task(self._wait(pod, container, file))

    def signal(self, identity: str, number: int) -> None:
        """Send a signal to a container, each signal once."""
        found = self._containers.get(identity)
        if found is not None and found.spawned is not None and number not in found.signals:
            found.signals.add(number)
            found.spawned.signal_group(number)

    def listen(self, on_end: Callable[[Manifest], None]) -> None:
        """Call `on_end` with the pod whenever one of its containers ended."""
        self._on_end = on_end

    def forget(self, uid: str) -> None:
        """Kill what is left of a pod that is gone and remove its folder."""
        files = self._pods.pop(uid, None)
        for identity, container in list(self._containers.items()):
            if container.files is files:
                self.signal(identity, signal.SIGKILL)
                if container.waiter is not None and not container.waiter.done():
                    self._leaving.add(container.waiter)
                    container.waiter.add_done_callback(self._leaving.discard)
                del self._containers[identity]
        if files is not None:
            files.remove()

    async def close(self) -> None:
        """Kill everything and see it end."""
        for identity in self._containers:
            self.signal(identity, signal.SIGKILL)
        waiters = (
            container.waiter
            for container in self._containers.values()
            if container.waiter is not None
        )
        await asyncio.gather(*waiters, *self._leaving, return_exceptions=True)

    def find(self, identity: str) -> Container | None:
        """The run of that containerID."""
        return self._containers.get(identity)

    def log_of(self, uid: str, name: str, restarts: int) -> Path:
        """Return the path of a run's log."""
        return self._folder / "pods" / uid / "logs" / name / f"{restarts}.log"

    async def execute(
        self, container: Container, command: list[str], *, tty: bool, stdin: bool
    ) -> Spawned:
        """Start another process in a running container. Raises OSError."""
        if container.spawned is None or container.end is not None:
            raise OSError("container not found: it does not run")
        line = sandbox.exec_command(
            container.spawned.pid, command, container.folder, is_isolated=can_isolate()
        )
        env = {**container.env, "TERM": "xterm"} if tty else container.env
        process = await spawn(line, env, tty=tty, stdin=stdin)
        container.beside.append(process)
        return process

    async def _wait(self, pod: Manifest, container: Container, file: BinaryIO) -> None:
        spawned = container.spawned
        if spawned is None:
            return
        await spawned.ended.wait()
        for other in container.beside:
            other.signal_group(signal.SIGKILL)  # a container ends with its first process
        file.close()
        message = ""
        if spawned.code and container.spec.get("terminationMessagePolicy") == (
            "FallbackToLogsOnError"
        ):
            data = container.log.read_bytes() if container.log.exists() else b""
            message = data[-_TAIL:].decode(errors="replace")
        container.end = End(spawned.code, self._world.now(), message)
        self._on_end(pod)

    def _environment(
        self, pod: Manifest, spec: Mapping[str, Any], files: PodFiles
    ) -> dict[str, str]:
        host, _, port = self._server.removeprefix("https://").rpartition(":")
        given = build_env(pod, spec, files.look_up, files.ips)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(files.folder / "work"),
            "HOSTNAME": host_name(pod),
            # Programs of one user that meet by host name and /tmp (Open MPI's daemons) would take
            # the pods for one machine.
            "TMPDIR": str(files.folder / "tmp" / spec["name"]),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            sandbox.POD_ROOT: str(files.folder / "volumes"),
            **given,
        }


def _command_of(spec: Mapping[str, Any]) -> list[str]:
    return [*(spec.get("command") or ()), *(spec.get("args") or ())] if spec.get("command") else []


def _keep(file: BinaryIO, clock: LogClock, data: bytes) -> None:
    if not file.closed:
        clock.note(file.tell())
        file.write(data)
