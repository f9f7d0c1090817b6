"""io: the demo's processes: command, settings and readiness check of each."""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import signal
import ssl
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devcluster.demo.securevipu import SecureVipu
from devcluster.demo.supervisor import Process
from devcluster.demo.vipufleet import controllers_of, heartbeat_options, node_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devcluster.demo.postgres import EmbeddedPostgres
    from devcluster.demo.vipufleet import DemoController

PORTS: Final = {
    "web": 8000,
    "proxy": 8080,
    "V-IPU": 8090,
    "V-IPU admin": 8091,
    "Kubernetes API": 6443,
    "PostgreSQL": 15432,
    "operator health": 8081,
    "prober health": 8082,
    "webhooks": 9443,
    "webhooks health": 8083,
    "monitor health": 8084,
}
# The first of as many in a row as there are IPU-Machines.
AGENT_PORTS: Final = {"V-IPU agents": 8180, "V-IPU metrics": 2112}
ACCOUNTS: Final = (
    "ipuhub-kubelet",
    "ipuhub-monitor",
    "ipuhub-operator",
    "ipuhub-prober",
    "ipuhub-proxy",
    "ipuhub-web",
    "ipuhub-webhooks",
)
NAMESPACE: Final = "ipuhub-system"
_CHECKOUT: Final = Path(__file__).resolve().parents[2] / "manage.py"
_MANAGE: Final = (str(_CHECKOUT),) if _CHECKOUT.exists() else ("-m", "ipuhub.commandline")


@dataclass
class Processes:
    """Makes the processes of one demo on `directory` and `ports`.

    Without ports for agents, the V-IPU controller simulates its machines itself.
    """

    directory: Path
    ports: Mapping[str, int]
    nodes: int
    machines: int
    runs_commands: bool = False
    meters: bool = True
    is_fleet: bool = False
    is_secure: bool = False

    @property
    def secure_vipu(self) -> SecureVipu | None:
        """The files of V-IPU's secure mode, if it is used."""
        return SecureVipu(self.directory) if self.is_secure else None

    @property
    def controllers(self) -> list[DemoController]:
        """The V-IPU controllers with their machines; raises ValueError."""
        return controllers_of(self.machines, is_fleet=self.is_fleet)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def accounts(self) -> Path:
        """Folder of the kubeconfigs and tokens of the service accounts."""
        return self.directory / "accounts"

    @property
    def pki(self) -> Path:
        """Folder of the cluster's certificate authority."""
        return self.directory / "kubernetes" / "pki"

    @property
    def webhook_certificate(self) -> Path:
        """Folder of the webhooks' certificate and key."""
        return self.directory / "webhooks"

    @property
    def admin_password(self) -> str:
        """The dashboard's generated password, the same at each start."""
        return self._secret("admin-password", 12)

    def api(self) -> Process:
        """The embedded Kubernetes API."""
        arguments: tuple[str, ...] = ("--dir", str(self.directory / "kubernetes"))
        arguments += ("--port", str(self.ports["Kubernetes API"]), "--authorization", "rbac")
        return Process(
            "kube-api",
            _manage("run_devcluster", *arguments, "--kubeconfig", str(self.kubeconfig)),
            is_ready=self._is_api_ready,
        )

    def kubelet(self) -> Process:
        """The stand-in nodes."""
        arguments: tuple[str, ...] = ("--nodes", str(self.nodes))
        arguments += node_options(self.controllers)
        environment = self._environment("ipuhub-kubelet")
        if self.runs_commands:
            arguments += ("--processes", str(self.directory / "pods"))
            programs = str(Path(sys.executable).parent)  # has ipuhub-launcher
            environment["PATH"] = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return Process("kubelet", _manage("run_kubelet", *arguments), environment)

    def webhooks(self) -> Process:
        """The admission webhooks of IPUJobs."""
        port = self.ports["webhooks"]
        environment = self._environment("ipuhub-webhooks") | {
            "IPUHUB_WEBHOOK_PORT": str(port),
            "IPUHUB_WEBHOOK_CERTIFICATE_PATH": str(self.webhook_certificate / "tls.crt"),
            "IPUHUB_WEBHOOK_KEY_PATH": str(self.webhook_certificate / "tls.key"),
            "IPUHUB_HEALTH_PORT": str(self.ports["webhooks health"]),
        }
        return Process(
            "webhooks",
            _manage("run_webhooks"),
            environment,
            is_ready=lambda: _accepts(port, self.pki / "ca.crt"),
        )

    def vipu_agents(self) -> Process:
        """The agents of all IPU-Machines."""
        first = self.ports["V-IPU agents"]
        command = [sys.executable, "-m", "partitions.vipu.agent.main"]
        command += ["--machines", str(self.machines), "--port", str(first)]
        command += ["--exporter-port", str(self.ports["V-IPU metrics"])]
        command += self.secure_vipu.server_options if self.secure_vipu else []
        # The last one listens when the others do.
        is_ready = functools.partial(_accepts, first + self.machines - 1)
        return Process("vipu-agents", command, is_ready=is_ready)

    def vipu_servers(self) -> list[Process]:
        """The V-IPU controllers."""
        return [self._vipu_server(each) for each in self.controllers]

    def _vipu_server(self, controller: DemoController) -> Process:
        port = self.ports[controller.purpose]
        command = [sys.executable, "-m", "partitions.vipu.server.main", "--port", str(port)]
        command += ["--storage", str(self.directory / controller.storage)]
        command += ["--admin-port", str(self.ports[controller.admin_purpose])]
        command += controller.layout
        command += self.secure_vipu.server_options if self.secure_vipu else []
        first = self.ports.get("V-IPU agents")
        if first is None:
            command += ["--machines", str(controller.machines)]
        else:
            begin = first + controller.first_machine
            agents = (f"127.0.0.1:{begin + number}" for number in range(controller.machines))
            command += ["--agents", ",".join(agents), *heartbeat_options(self.machines)]
        return Process(controller.process, command, is_ready=lambda: _accepts(port))

    def proxy(self) -> Process:
        """The V-IPU Proxy."""
        port = self.ports["proxy"]
        access = self.secure_vipu.access if self.secure_vipu else None
        environment = self._environment("ipuhub-proxy") | {
            **({"IPUHUB_VIPU_ACCESS_PATH": str(access)} if access else {}),
            "PROXY_PORT": str(port),
            "IPUHUB_VIPU_CONTROLLERS": ",".join(
                f"127.0.0.1:{self.ports[each.purpose]}:{each.label}" for each in self.controllers
            ),
            # Without a recorder the tracker would never drop a partition.
            "IPUHUB_TRACKER_RECORDER": "on" if self.meters else "off",
            # Its jobs take two minutes at most, and releases are recorded at once.
            "IPUHUB_TRACKER_TOMBSTONE_SECONDS": "300",
        }
        return Process(
            "proxy",
            _manage("run_vipu_proxy"),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/health"),
        )

    def operator(self) -> Process:
        """The IPU Operator."""
        port = self.ports["operator health"]
        environment = self._environment("ipuhub-operator") | {"IPUHUB_HEALTH_PORT": str(port)}
        return Process(
            "operator",
            _manage("run_operator"),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/readyz"),
        )

    def postgres(self, server: EmbeddedPostgres) -> Process:
        """The database server."""
        return Process(
            "postgres",
            server.command(),
            is_ready=lambda: asyncio.to_thread(server.is_ready),
            stop_signal=signal.SIGINT,  # PostgreSQL's "fast": do not wait for clients
        )

    def web(self, database_url: str) -> Process:
        """The dashboard; it migrates the database before it serves."""
        port = self.ports["web"]
        environment = self._environment("ipuhub-web") | self._web_settings(database_url)
        return Process(
            "web",
            _manage("run_web", "--port", str(port)),
            environment
            | {
                "IPUHUB_ADMIN_PASSWORD": self.admin_password,
                "IPUHUB_ACTIONS": "on",
                "IPUHUB_ACTIONS_USERS": "admin=demo-admin",
                "IPUHUB_WEBHOOK_ADDRESS": f"127.0.0.1:{self.ports['webhooks']}",
            },
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/readyz"),
        )

    def prober(self, database_url: str) -> Process:
        """The recorder of pods, jobs and partitions."""
        port = self.ports["prober health"]
        environment = self._environment("ipuhub-prober") | {
            "DATABASE_URL": database_url,
            "IPUHUB_HEALTH_PORT": str(port),
            "IPUHUB_TRUST_CREATED_BY": "on",  # the webhooks see to it
        }
        return Process(
            "prober",
            _manage("run_prober"),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/readyz"),
        )

    def monitor(self, database_url: str) -> Process:
        """Return the process that ends lifetimes of pods whose end the prober missed."""
        port = self.ports["monitor health"]
        environment = self._environment("ipuhub-monitor") | {
            "DATABASE_URL": database_url,
            "IPUHUB_HEALTH_PORT": str(port),
        }
        return Process(
            "monitor",
            _manage("run_monitor"),
            environment,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/readyz"),
        )

    def worker(self, database_url: str) -> Process:
        """The Celery worker, with the daily schedule in it."""
        schedule = self.directory / "celery" / "schedule"
        schedule.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "celery", "-A", "ipuhub.celery", "--quiet", "worker"]
        command += ["--beat", "--schedule", str(schedule), "--pool", "solo"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        command += ["--loglevel", "WARNING"]
        environment = self._environment("ipuhub-web") | self._web_settings(database_url)
        return Process("worker", command, environment)

    def _web_settings(self, database_url: str) -> dict[str, str]:
        return {
            # The demo itself runs with the settings of processes without a database.
            "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
            "DATABASE_URL": database_url,
            "IPUHUB_SECRET_KEY": self._secret("secret-key", 48),
            "IPUHUB_HTTPS": "off",  # the demo uses plain HTTP on this machine
        }

    def _environment(self, account: str) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.accounts / f"{account}.kubeconfig"),
            "IPUHUB_NAMESPACE": NAMESPACE,
            "IPUHUB_SERVICE_ACCOUNT": f"{NAMESPACE}/{account}",
            # A restarted process continues at once instead of waiting until its own lease expires.
            "IPUHUB_IDENTITY": f"{account}-demo",
            "IPUHUB_PROXY_URL": f"http://127.0.0.1:{self.ports['proxy']}",
            "PYTHONUNBUFFERED": "1",
        }

    def _secret(self, name: str, size: int) -> str:
        path = self.directory / name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(size), encoding="ascii")
        return path.read_text(encoding="ascii").strip()

    async def _is_api_ready(self) -> bool:
        port = self.ports["Kubernetes API"]
        if not self.kubeconfig.exists() or f":{port}" not in self.kubeconfig.read_text("utf-8"):
            return False
        return await _accepts(port)


def _manage(*arguments: str) -> list[str]:
    return [sys.executable, *_MANAGE, *arguments]


async def _accepts(port: int, authority: Path | None = None) -> bool:
    """Return whether a server listens; with `authority`, a server whose certificate is of that CA.

    Another demo that starts at the same moment may have been given the same port.
    """
    context = ssl.create_default_context(cafile=authority) if authority else None
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
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
