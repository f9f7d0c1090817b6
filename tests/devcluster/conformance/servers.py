"""io: the API servers that the conformance suite runs on, started and stopped here.

`EmbeddedServer` is ours. The real server is either a whole cluster (`IPUHUB_TEST_KUBECONFIG`) or an
etcd and kube-apiserver of this suite's own (`KUBEBUILDER_ASSETS`), without controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.devcluster.conformance.certificates import write_certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

NODES = 4
HISTORY = 500
START_SECONDS = 240


@dataclass(frozen=True)
class Server:
    """A running API server: who it is and how to reach it as an administrator."""

    name: str
    kubeconfig: Path
    expire_history: Callable[[], None] | None = None
    """Makes every resource version up to now too old; None where the suite cannot."""

    @property
    def is_embedded(self) -> bool:
        """Return whether this is our own server."""
        return self.name == "embedded"


def real_is_wanted() -> bool:
    """Return whether the environment names a real API server."""
    return bool(os.environ.get("IPUHUB_TEST_KUBECONFIG") or os.environ.get("KUBEBUILDER_ASSETS"))


def real_has_controllers() -> bool:
    """Return whether the real server is a whole cluster."""
    return bool(os.environ.get("IPUHUB_TEST_KUBECONFIG"))


def real_can_expire_history() -> bool:
    """Return whether the etcd behind the real server can be compacted from here."""
    return not real_has_controllers() or bool(os.environ.get("IPUHUB_TEST_ETCD"))


def real_version() -> tuple[int, int]:
    """The release of the real server, (1, 20), asked without starting a server."""
    kubeconfig = os.environ.get("IPUHUB_TEST_KUBECONFIG")
    if kubeconfig:
        command = ["kubectl", "--kubeconfig", kubeconfig, "version", "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        text = json.loads(done.stdout)["serverVersion"]["gitVersion"]
    else:
        binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kube-apiserver"
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
        text = done.stdout
    found = re.search(r"v(\d+)\.(\d+)", text)
    assert found, f"no release in {text!r}"
    return int(found[1]), int(found[2])


@contextlib.contextmanager
def start(name: str) -> Iterator[Server]:
    """Yield the server of that name, "embedded" or "real"; it ends with the context."""
    if name == "embedded":
        with _embedded() as server:
            yield server
    elif real_has_controllers():
        etcd = os.environ.get("IPUHUB_TEST_ETCD")
        kubeconfig = Path(os.environ["IPUHUB_TEST_KUBECONFIG"])
        yield Server("real", kubeconfig, (lambda: compact(etcd)) if etcd else None)
    else:
        with _control_plane(Path(os.environ["KUBEBUILDER_ASSETS"])) as server:
            yield server


class LoopThread:
    """An event loop in a thread of its own, for servers that outlive one test's loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="conformance-server")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any], timeout_seconds: float = 60) -> Any:
        """Run `work` on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_seconds)

    def close(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@contextlib.contextmanager
def _embedded() -> Iterator[Server]:
    """Our own server with stand-in nodes, on a loop in a thread."""
    from devcluster.kubelet.options import StandInOptions
    from devcluster.kubelet.standin import StandInNodes
    from devcluster.server import DevCluster
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.config import load_config

    thread, directory = LoopThread(), tempfile.mkdtemp(prefix="conformance-")
    cluster = DevCluster(Path(directory), history=HISTORY, authorization="rbac")

    async def up() -> tuple[KubeClient, asyncio.Task[None]]:
        await cluster.start()
        client = KubeClient(load_config(str(cluster.kubeconfig)))
        return client, asyncio.create_task(StandInNodes(client, StandInOptions(nodes=NODES)).run())

    async def down(client: KubeClient, nodes: asyncio.Task[None]) -> None:
        nodes.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await nodes
        await client.close()
        await cluster.stop()

    async def write_past_history(client: KubeClient) -> None:
        from ipuhub.kube.resources import CONFIG_MAPS

        name = f"history-{secrets.token_hex(4)}"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await client.create(CONFIG_MAPS, body, "default")
        for number in range(HISTORY + 1):
            patch = {"data": {"n": str(number)}}
            await client.patch(CONFIG_MAPS, name, patch, "default")

    try:
        client, nodes = thread.run(up())
        try:
            expire = lambda: thread.run(write_past_history(client))  # noqa: E731
            yield Server("embedded", Path(cluster.kubeconfig), expire)
        finally:
            thread.run(down(client, nodes))
    finally:
        thread.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _control_plane(assets: Path) -> Iterator[Server]:
    """An etcd and a kube-apiserver with certificates and keys made for this run."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="conformance-", dir=where))
    port, etcd_port, peer_port = free_ports(3)
    etcd = f"http://127.0.0.1:{etcd_port}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        pki = write_certificates(directory / "pki")
        processes.append(
            _start(assets / "etcd", _etcd_flags(directory, etcd, peer_port), directory)
        )
        _wait_http(f"{etcd}/health", None, processes[-1], directory / "etcd.log")
        flags = _apiserver_flags(pki, port, etcd)
        processes.append(_start(assets / "kube-apiserver", flags, directory))
        context = ssl.create_default_context(cafile=pki / "ca.crt")
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        url, log = f"https://127.0.0.1:{port}", directory / "kube-apiserver.log"
        _wait_http(f"{url}/readyz", context, processes[-1], log)
        kubeconfig = _write_kubeconfig(directory / "admin.kubeconfig", url, pki)
        yield Server("real", kubeconfig, lambda: compact(etcd))
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        shutil.rmtree(directory, ignore_errors=True)


def _etcd_flags(directory: Path, url: str, peer_port: int) -> list[str]:
    peer = f"http://127.0.0.1:{peer_port}"
    return [
        "--name=conformance",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=conformance={peer}",
    ]


def _apiserver_flags(pki: Path, port: int, etcd: str) -> list[str]:
    """Flags that 1.20 and current releases share. No account controller: its plug-in is off."""
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--cert-dir={pki}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'accounts.key'}",
        "--disable-admission-plugins=ServiceAccount",
    ]


def _start(binary: Path, flags: list[str], directory: Path) -> subprocess.Popen[bytes]:
    with (directory / f"{binary.name}.log").open("wb") as log:
        return subprocess.Popen([binary, *flags], stdout=log, stderr=log)


def _wait_http(
    url: str, context: ssl.SSLContext | None, process: subprocess.Popen[bytes], log: Path
) -> None:
    """Return when `url` answers 200; AssertionError with the log's end when it never does."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, context=context, timeout=5):
            return
        tail = log.read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"{url}: the process ended:\n{tail}"
        assert time.monotonic() < deadline, f"{url}: not ready in {START_SECONDS} s:\n{tail}"
        time.sleep(0.1)


def _write_kubeconfig(path: Path, url: str, pki: Path) -> Path:
    cluster = {"server": url, "certificate-authority": str(pki / "ca.crt")}
    user = {
        "client-certificate": str(pki / "admin.crt"),
        "client-key": str(pki / "admin.key"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "conformance", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [
            {"name": "conformance", "context": {"cluster": "conformance", "user": "admin"}}
        ],
        "current-context": "conformance",
    }
    path.write_text(json.dumps(config))
    return path


def compact(etcd: str) -> None:
    """Drop etcd's history up to now, so that older resource versions are expired."""

    def call(path: str, body: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        with urllib.request.urlopen(f"{etcd}{path}", data=data, timeout=10) as answer:
            return dict(json.load(answer))

    revision = call("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
    call("/v3/kv/compaction", {"revision": revision, "physical": True})


def free_ports(count: int) -> list[int]:
    """Free ports of loopback."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
