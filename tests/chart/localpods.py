"""Pods of the chart as processes of this machine, for a test without nodes.

Each pod has its own network, mounts and host name, its volumes, variables and token, the user of
its manifest, no capability, and a read-only root. Its files are this machine's, with the checkout's
programs instead of the image's. Services lead from pod to pod, by name. Needs root, and iptables.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from devcluster.processes.podfiles import PodFiles, build_env, host_name
from ipuhub.kube.resources import PODS
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from ipuhub.kube.client import KubeClient

    Connect = Callable[[], Awaitable[socket.socket]]

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "10.9.8.7"  # the pods' own, as a kubelet names it in a probe
_HERE = "127.0.0.1"
_NEW_NETWORK = 0x40000000
_SET_FLAGS, _SET_ADDRESS, _IS_UP = 0x8914, 0x8916, 1
_SERVING = b"\x08\x01"
_LIBRARY = ctypes.CDLL(None, use_errno=True)
# Everything of this machine in an overlay, so that a mount path may be made; then read-only.
_ENTER = """\
set -e
mount --make-rprivate /
mount -t tmpfs pod "$place"
mkdir "$place/upper" "$place/work" "$place/root"
root=$place/root
mount -t overlay pod -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$root"
for each in /proc /sys /dev $seen; do
  mkdir -p "$root$each"; mount --rbind "$each" "$root$each"
  while [ "$each" != / ]; do each=$(dirname "$each"); chmod o+x "$root$each" 2>/dev/null || :; done
done
cat "$hosts" > "$root/etc/hosts"
echo "pod:x:$user:$group::/tmp:/bin/sh" >> "$root/etc/passwd"
lay() { mkdir -p "$root$2"; mount --bind "$1" "$root$2"; mount -o "remount,bind,$3" "$root$2"; }
"""
_BEGIN = """\
mount -o remount,bind,ro "$root"
hostname "$host"
read -r go
exec "$chroot" "$root" setpriv --reuid "$user" --regid "$group" --clear-groups --inh-caps=-all \
  --bounding-set=-all --no-new-privs --pdeathsig KILL -- "$@" </dev/null
"""


def image_config() -> tuple[list[str], dict[str, str]]:
    """Entrypoint and variables of the image, with the checkout's programs on the path."""
    text = (ROOT / "containers/Containerfile").read_text("utf-8").replace("\\\n", " ")
    entrypoint = json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[-1])
    words = shlex.split(re.findall(r"^ENV (.+)$", text, re.MULTILINE)[-1])
    found = dict(word.split("=", 1) for word in words)
    programs, _, system = found["PATH"].partition(":")
    assert programs == "/opt/ipuhub/bin"
    del found["IPUHUB_STATIC_ROOT"]  # part of the image; without it the dashboard makes a folder
    return entrypoint, found | {"PATH": f"{ROOT / '.venv/bin'}:{system}"}


class Network:
    """The network of a process: sockets made here lie there."""

    def __init__(self, pid: int) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=_enter_network, initargs=(pid,))
        self._thread.submit(_set_up).result()

    def open(self) -> socket.socket:
        """Return a socket that is not connected yet."""
        made = self._thread.submit(socket.socket).result()
        made.setblocking(False)
        return made

    def listen(self, port: int = 0) -> socket.socket:
        """Return a server that listens there, or at any port."""
        return self._thread.submit(socket.create_server, (_HERE, port)).result()

    async def connect(self, port: int) -> socket.socket:
        """Return a connection to what listens at the pod's address. Raise OSError if nothing
        does."""
        made = self.open()
        try:
            await asyncio.get_running_loop().sock_connect(made, (ADDRESS, port))
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        self._thread.shutdown()


def _enter_network(pid: int) -> None:
    with Path(f"/proc/{pid}/ns/net").open() as file:
        if _LIBRARY.setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")


def _set_up() -> None:
    with socket.socket() as made:
        fcntl.ioctl(made, _SET_FLAGS, struct.pack("16sH14x", b"lo", _IS_UP))
        own = struct.pack("16sH2x4s8x", b"lo:1", socket.AF_INET, socket.inet_aton(ADDRESS))
        fcntl.ioctl(made, _SET_ADDRESS, own)


@dataclass
class LocalPod:
    """One pod: its manifest, its only container, the process."""

    manifest: dict[str, Any]
    log: Path
    process: subprocess.Popen[bytes]
    network: Network

    @property
    def container(self) -> dict[str, Any]:
        (found,) = self.manifest["spec"]["containers"]
        return dict(found)

    def port(self, wanted: str | int) -> int:
        """Number of a port of the container, by name or number."""
        ports = {each["name"]: each["containerPort"] for each in self.container.get("ports", ())}
        return int(ports.get(wanted, wanted))

    def log_text(self) -> str:
        return self.log.read_text("utf-8")

    async def passes(self, probe: Mapping[str, Any]) -> bool:
        """Return whether a kubelet would count this probe as passed now."""
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                if "httpGet" in probe:
                    return await self._answers(probe["httpGet"])
                if "grpc" in probe:
                    return await self._serves(int(probe["grpc"]["port"]))
                (await self.network.connect(self.port(probe["tcpSocket"]["port"]))).close()
                return True
        except (OSError, TimeoutError, grpc.aio.AioRpcError):
            return False

    async def _answers(self, wanted: Mapping[str, Any]) -> bool:
        port = self.port(wanted["port"])
        made = await self.network.connect(port)
        reader, writer = await asyncio.open_connection(sock=made)
        try:
            head = f"GET {wanted['path']} HTTP/1.1\r\nHost: {ADDRESS}:{port}\r\n"
            writer.write(f"{head}User-Agent: kube-probe/1.37\r\nConnection: close\r\n\r\n".encode())
            line = (await reader.readline()).split()
            return len(line) > 1 and 200 <= int(line[1]) < 400
        finally:
            writer.close()

    async def _serves(self, port: int) -> bool:
        async with (
            forwarded(lambda: self.network.connect(port)) as here,
            grpc.aio.insecure_channel(f"{_HERE}:{here}") as channel,
        ):
            return bool(await channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == _SERVING)


@asynccontextmanager
async def forwarded(connect: Connect, listener: socket.socket | None = None) -> AsyncIterator[int]:
    """Lead what connects to `listener`, or to a port of this machine, to where `connect` leads."""

    tasks: set[asyncio.Task[None]] = set()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(sock=await connect())
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(lead(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    at: dict[str, Any] = {"sock": listener} if listener else {"host": _HERE, "port": 0}
    server = await asyncio.start_server(accept, **at)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@dataclass
class LocalPods:
    """The pods of one namespace, below `folder`; `client` is an administrator's."""

    client: KubeClient
    folder: Path
    namespace: str
    services: list[dict[str, Any]]
    pods: list[LocalPod] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self, name: str, template: Mapping[str, Any]) -> LocalPod:
        """Create a pod of this template, and start its container once its network is there."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": name, "namespace": self.namespace},
            "spec": {**template["spec"], "nodeName": "this-machine"},
        }
        manifest = await self.client.create(PODS, body, self.namespace)
        folder = self.folder / name
        files = PodFiles(self.client, folder, manifest, {"status.podIP": ADDRESS})
        await files.prepare()
        process = self._begin(manifest, files)
        mine, theirs = Path("/proc/self/ns/net").readlink(), Path(f"/proc/{process.pid}/ns/net")
        await eventually(lambda: theirs.readlink() != mine)
        pod = LocalPod(manifest, folder / "log", process, Network(process.pid))
        self.pods.append(pod)
        await self._connect(pod)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        return pod

    def _begin(self, manifest: dict[str, Any], files: PodFiles) -> subprocess.Popen[bytes]:
        """Start a pod's container in namespaces of its own; it waits for a line."""
        (container,), spec = manifest["spec"]["containers"], manifest["spec"]
        entrypoint, env = image_config()
        env |= {"KUBERNETES_SERVICE_HOST": _HERE, "KUBERNETES_SERVICE_PORT": str(self._port)}
        env |= build_env(manifest, container, files.look_up, files.ips)
        security, user = container["securityContext"], spec["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False
        group = user.get("fsGroup", user["runAsGroup"])
        for path in (files.folder / "volumes").rglob("*"):
            os.chown(path, user["runAsUser"], group)
        given = {
            "place": _made(files.folder / "place"),
            "hosts": self._write_hosts(files.folder),
            "seen": " ".join({str(ROOT), sys.base_prefix}),
            "user": user["runAsUser"],
            "group": user["runAsGroup"],
            "host": host_name(manifest),
            "chroot": shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"),
        }
        lines = [f"{key}={shlex.quote(str(value))}" for key, value in given.items()]
        lines.append(_ENTER)
        read_only = {each["mountPath"]: each.get("readOnly") for each in container["volumeMounts"]}
        for source, at in files.mounts(container):
            how = "ro" if read_only.get(at, True) else "rw"
            lines.append(f"lay {shlex.quote(source)} {shlex.quote(os.path.realpath(at))} {how}")
        command = [*container.get("command", entrypoint), *container.get("args", ())]
        script = "\n".join([*lines, _BEGIN])
        with (files.folder / "log").open("wb") as log:
            return subprocess.Popen(
                ["unshare", "--net", "--mount", "--uts", "sh", "-c", script, "sh", *command],
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    @property
    def _port(self) -> int:
        return int(self.client.config.server.rpartition(":")[2])

    def _write_hosts(self, folder: Path) -> Path:
        lines = [f"{_HERE} localhost"]
        for number, service in enumerate(self.services):
            name = service["metadata"]["name"]
            names = (name, *(f"{name}.{self.namespace}{end}" for end in ("", ".svc")))
            lines.append(f"{_address(number)} {' '.join(names)} {names[-1]}.cluster.local")
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        return folder / "hosts"

    async def _connect(self, pod: LocalPod) -> None:
        """Lead from a pod to the API server and to each port of each Service."""

        async def to_server() -> socket.socket:
            made = socket.socket()
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, (_HERE, self._port))
            return made

        listener = pod.network.listen(self._port)
        await self._stack.enter_async_context(forwarded(to_server, listener))
        rules = ["*nat"]
        for number, service in enumerate(self.services):
            for port in service["spec"]["ports"]:
                lead = self._leading(service["spec"]["selector"], port["targetPort"])
                here = await self._stack.enter_async_context(forwarded(lead, pod.network.listen()))
                to = f"-d {_address(number)} -p tcp --dport {port['port']}"
                rules.append(f"-A OUTPUT {to} -j REDIRECT --to-ports {here}")
        await asyncio.to_thread(_redirect, pod.process.pid, "\n".join([*rules, "COMMIT", ""]))

    def _leading(self, selector: Mapping[str, str], target: str | int) -> Connect:
        async def connect() -> socket.socket:
            for pod in self.pods:
                labels = pod.manifest["metadata"]["labels"]
                if pod.process.poll() is None and selector.items() <= labels.items():
                    return await pod.network.connect(pod.port(target))
            raise ConnectionRefusedError(f"no pod of {selector}")

        return connect

    async def close(self) -> None:
        """End all processes."""
        for pod in self.pods:
            if pod.process.poll() is None:
                os.killpg(pod.process.pid, signal.SIGKILL)
            pod.process.wait()
        await self._stack.aclose()
        for pod in self.pods:
            pod.network.close()


def _redirect(pid: int, rules: str) -> None:
    """Have the network of a process rewrite addresses by these rules."""
    subprocess.run(
        ["nsenter", "--net", "--target", str(pid), "iptables-restore"],
        input=rules,
        env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        text=True,
        timeout=60,
        check=True,
    )


def _address(number: int) -> str:
    """A Service's own address, of those that lead nowhere but to this network."""
    return f"127.0.1.{number + 1}"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
