"""Operator, proxy, webhooks and V-IPU as processes of this machine, beside a given cluster."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

from devcluster.demo.cluster import ACCESS_FILE, CRD_FILE, apply_file, write_account_kubeconfig
from devcluster.demo.processes import NAMESPACE, PORTS, Processes
from devcluster.demo.supervisor import Supervisor
from devcluster.demo.webhooks import apply_configurations, renew_certificate
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from tests.devcluster.conformance.servers import LoopThread
from tests.fakes.freeport import free_port
from tests.realnodes.image import NAME

if TYPE_CHECKING:
    from pathlib import Path

_ACCOUNTS = ("ipuhub-operator", "ipuhub-proxy", "ipuhub-webhooks")
_SECONDS = 240


class Product:
    """The processes, each with the rights of its own account; who dies is started again."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.lines: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(kubeconfig, folder / "kubeconfig")
        ports = {purpose: free_port() for purpose in PORTS}
        self._processes = Processes(folder, ports, nodes=0, machines=8, meters=False)
        self._loop = LoopThread()
        self._supervisor = Supervisor(output=self.lines.append)
        self._environment = {
            "IPUHUB_LAUNCHER_IMAGE": NAME,
            "IPUHUB_LEASE_DURATION_SECONDS": "6",
            "IPUHUB_LEASE_RENEW_SECONDS": "4",
            "IPUHUB_LEASE_RETRY_SECONDS": "0.5",
        }

    def start(self) -> None:
        """Install CRD, rights and webhooks, and start what needs them."""
        # Until the end: who dies is started again with it.
        os.environ.update(self._environment)
        self._loop.run(self._start(), _SECONDS)

    def kill(self, name: str) -> None:
        """End one process at once; the supervisor starts it again."""
        os.kill(self._supervisor._children[name].pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all."""
        self._loop.run(self._supervisor.stop(), _SECONDS)
        self._loop.close()
        for name in self._environment:
            del os.environ[name]

    async def _start(self) -> None:
        made, start = self._processes, self._supervisor.start
        authority = renew_certificate(made.pki, made.webhook_certificate)
        async with KubeClient(load_config(str(made.kubeconfig))) as client:
            await apply_file(client, ACCESS_FILE)
            for account in _ACCOUNTS:
                await write_account_kubeconfig(
                    client, made.kubeconfig, made.accounts, f"{NAMESPACE}/{account}"
                )
            for process in (*made.vipu_servers(), made.webhooks(), made.proxy()):
                start(process)
            await apply_configurations(
                client, authority, made.ports["webhooks"], ("kube-system", NAMESPACE)
            )
            await apply_file(client, CRD_FILE)
        start(made.operator())
        await self._supervisor.wait_ready("vipu-server", "webhooks", "proxy", "operator")
