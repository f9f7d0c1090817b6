"""io: `manage.py demo`: the whole product as separate processes on one machine."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import signal
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipuhub.demo.ports import choose_port
from ipuhub.demo.postgres import EmbeddedPostgres
from ipuhub.demo.supervisor import Process, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_PORTS: Final = {
    "web": 8000,
    "proxy": 8080,
    "V-IPU": 8090,
    "Kubernetes API": 6443,
    "PostgreSQL": 15432,
    "operator health": 8081,
}
ACCOUNTS: Final = ("ipuhub-operator", "ipuhub-proxy", "ipuhub-web")
_NAMESPACE: Final = "ipuhub-system"
_NODE_LABEL: Final = "vipu-ctrl=vctl1"


class DemoError(RuntimeError):
    """The demo cannot start; the message says why and what to do."""


@dataclass
class Demo:
    """State folder, ports and processes of one demo."""

    directory: Path
    nodes: int = 4
    machines: int = 8
    say: Callable[[str], None] = print
    ports: dict[str, int] = field(default_factory=dict)
    supervisor: Supervisor = field(default_factory=Supervisor)
    _lock: TextIO | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for `kubectl`."""
        return self.directory / "kubeconfig"

    async def run(self) -> None:
        """Start everything, print where it is, and keep it up until SIGINT or SIGTERM."""
        started = time.monotonic()
        self.take_lock()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        starting = asyncio.create_task(self.start())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self.say(self.summary(time.monotonic() - started))
                await self._keep_tokens_fresh(stop)
        finally:
            starting.cancel()
            self.say("stopping ...")
            await self.supervisor.stop()
            self.say("stopped; the state stays in " + _shown(self.directory))

    def take_lock(self) -> None:
        """Refuse a second demo on the same folder."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"a demo already runs on {_shown(self.directory)}: stop it with Ctrl-C first"
            ) from None

    async def start(self) -> None:
        """Start the processes as early as what they need allows; return when all serve."""
        self._choose_ports()
        self.supervisor.start(self._api_process())
        self.supervisor.start(self._vipu_process())
        await asyncio.gather(self._start_web(), self._start_cluster())
        await self.supervisor.wait_ready("kubelet", "vipu-server", "proxy", "operator", "web")

    async def _start_web(self) -> None:
        postgres = EmbeddedPostgres(self.directory / "postgres", self.ports["PostgreSQL"])
        await asyncio.to_thread(postgres.stop_leftover)
        await asyncio.to_thread(postgres.prepare)
        self.supervisor.start(
            Process(
                "postgres",
                postgres.command(),
                is_ready=lambda: asyncio.to_thread(postgres.is_ready),
                stop_signal=signal.SIGINT,  # PostgreSQL's "fast": do not wait for clients
            )
        )
        await self.supervisor.wait_ready("postgres")
        self.supervisor.start(self._web_process(postgres.url))

    async def _start_cluster(self) -> None:
        # Imported while the API server starts: it takes as long as that.
        from ipuhub.demo.cluster import prepare_cluster, write_account_kubeconfig
        from ipuhub.kube.client import KubeClient
        from ipuhub.kube.config import load_config

        await self.supervisor.wait_ready("kube-api")
        self.supervisor.start(self._kubelet_process())
        async with KubeClient(load_config(str(self.kubeconfig))) as client:
            await prepare_cluster(client)
            for account in ACCOUNTS:
                await write_account_kubeconfig(
                    client, self.kubeconfig, self._accounts, f"{_NAMESPACE}/{account}"
                )
        self.supervisor.start(self._proxy_process())
        self.supervisor.start(self._operator_process())

    def summary(self, seconds: float) -> str:
        """Say where everything is."""
        return f"""
  IPUHub is up ({seconds:.1f} s).

    dashboard   http://localhost:{self.ports["web"]}   (user admin, password {self.admin_password})
    V-IPU Proxy http://localhost:{self.ports["proxy"]}/stats
    kubectl     export KUBECONFIG={self.kubeconfig}

  Try:  kubectl apply -f examples/single-gcd-sample.yaml && kubectl get ipujobs -w
  Ctrl-C stops everything; the state stays in {_shown(self.directory)} (make demo-clean removes it).
"""

    @property
    def admin_password(self) -> str:
        """The dashboard's generated password, the same at each start."""
        return self._secret("admin-password", 12)

    @property
    def _accounts(self) -> Path:
        return self.directory / "accounts"

    def _choose_ports(self) -> None:
        taken: set[int] = set()
        for purpose, wanted in _PORTS.items():
            port = choose_port(purpose, wanted, taken)
            self.ports[purpose] = port.number
            if port.notice:
                self.say(port.notice)
        (self.directory / "ports.json").write_text(json.dumps(self.ports), encoding="ascii")

    def _secret(self, name: str, size: int) -> str:
        path = self.directory / name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(size), encoding="ascii")
        return path.read_text(encoding="ascii").strip()

    def _manage(self, *arguments: str) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve().parents[2] / "manage.py"), *arguments]

    def _environment(self, account: str = "") -> dict[str, str]:
        kubeconfig = self._accounts / f"{account}.kubeconfig" if account else self.kubeconfig
        return {
            "KUBECONFIG": str(kubeconfig),
            "IPUHUB_NAMESPACE": _NAMESPACE,
            "IPUHUB_SERVICE_ACCOUNT": f"{_NAMESPACE}/{account}" if account else "",
            "IPUHUB_PROXY_URL": f"http://127.0.0.1:{self.ports['proxy']}",
            "PYTHONUNBUFFERED": "1",
        }

    def _api_process(self) -> Process:
        arguments = ("--dir", str(self.directory / "kubernetes"))
        port = ("--port", str(self.ports["Kubernetes API"]))
        return Process(
            "kube-api",
            self._manage("run_devcluster", *arguments, *port, "--kubeconfig", str(self.kubeconfig)),
            is_ready=self._is_api_ready,
        )

    def _kubelet_process(self) -> Process:
        arguments = ("--nodes", str(self.nodes), "--label", _NODE_LABEL)
        return Process("kubelet", self._manage("run_kubelet", *arguments), self._environment())

    def _vipu_process(self) -> Process:
        port = self.ports["V-IPU"]
        command = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(port)]
        command += ["--storage", str(self.directory / "vipu-server.json")]
        command += ["--machines", str(self.machines)]
        return Process("vipu-server", command, is_ready=lambda: _accepts(port))

    def _proxy_process(self) -> Process:
        port = self.ports["proxy"]
        environment = self._environment("ipuhub-proxy") | {
            "PROXY_PORT": str(port),
            "IPUHUB_VIPU_CONTROLLERS": f"127.0.0.1:{self.ports['V-IPU']}:{_NODE_LABEL}",
        }
        return Process(
            "proxy",
            self._manage("run_vipu_proxy"),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/health"),
        )

    def _operator_process(self) -> Process:
        port = self.ports["operator health"]
        environment = self._environment("ipuhub-operator") | {"IPUHUB_HEALTH_PORT": str(port)}
        return Process(
            "operator",
            self._manage("run_operator"),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/readyz"),
        )

    def _web_process(self, database_url: str) -> Process:
        port = self.ports["web"]
        environment = self._environment("ipuhub-web") | {
            "DATABASE_URL": database_url,
            "IPUHUB_SECRET_KEY": self._secret("secret-key", 48),
            "IPUHUB_ADMIN_PASSWORD": self.admin_password,
            "IPUHUB_HTTPS": "off",  # the demo speaks plain HTTP on this machine
        }
        return Process(
            "web",
            self._manage("run_web", "--port", str(port)),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/healthz"),
        )

    async def _is_api_ready(self) -> bool:
        port = self.ports["Kubernetes API"]
        if not self.kubeconfig.exists() or f":{port}" not in self.kubeconfig.read_text("utf-8"):
            return False
        return await _accepts(port)

    async def _keep_tokens_fresh(self, stop: asyncio.Event) -> None:
        from ipuhub.demo.cluster import TOKEN_SECONDS, refresh_token
        from ipuhub.kube.client import KubeClient
        from ipuhub.kube.config import load_config

        while True:
            try:
                await asyncio.wait_for(stop.wait(), TOKEN_SECONDS / 2)
            except TimeoutError:
                async with KubeClient(load_config(str(self.kubeconfig))) as client:
                    for account in ACCOUNTS:
                        await refresh_token(client, self._accounts, f"{_NAMESPACE}/{account}")
            else:
                return


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def answers(url: str) -> bool:
    """Say whether a GET of `url` is answered with 200."""

    def ask() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  # our own http URLs
                return bool(answer.status == 200)
        except OSError:
            return False

    return await asyncio.to_thread(ask)


def _shown(path: Path) -> str:
    """Return `path` relative to the current folder where it lies below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
