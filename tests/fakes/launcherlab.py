"""A stored IPUJob on the embedded API, and `ipuhub-launcher` run for it as the image runs it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from devcluster.server import DevCluster
from ipuhub.kube import resources
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from jobs.ipujob.crd import build_crd
from jobs.ipujob.names import IPUJOBS
from jobs.launcher.main import ACCOUNT
from tests.builders.ipujobs import ipujob, worker
from tests.builders.kubeconfigs import write_account_kubeconfig
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROGRAM = Path(__file__).parents[2] / "jobs/launcher/main.py"
ALONE = [sys.executable, "-IS", str(PROGRAM)]
ACCOUNT_NAME = "default/sample-launcher"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs"], "verbs": ["get"]},
]


class Job:
    """A stored job, and its launcher's environment and output."""

    def __init__(
        self, client: KubeClient, stored: dict[str, Any], environment: dict[str, str]
    ) -> None:
        self.client, self.stored, self.environment = client, stored, environment
        self.lines: list[str] = []

    async def add_worker(self, number: int) -> None:
        pod = worker(self.stored, number).build()
        pod["metadata"].pop("uid")
        status = worker(self.stored, number).running().build()["status"]
        await self.client.create(PODS, pod)
        name = pod["metadata"]["name"]
        await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")

    async def grant(self) -> None:
        """The role and binding that the operator makes while the pod starts."""
        meta = {"name": "sample-launcher", "namespace": "default"}
        group = "rbac.authorization.k8s.io"
        role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": RULES}
        await self.client.create(resources.ROLES, role)
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "sample-launcher"},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        }
        await self.client.create(resources.ROLE_BINDINGS, binding)

    async def says(self, words: str) -> None:
        await eventually(lambda: any(words in line for line in self.lines))

    @contextlib.asynccontextmanager
    async def running(self, **changes: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The program, whose lines are in `lines`."""
        process = await asyncio.create_subprocess_exec(
            *ALONE, env=self.environment | changes, stdout=subprocess.PIPE, stderr=sys.stderr
        )
        reading = asyncio.create_task(self._read(process))
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await reading

    async def ends(self, **changes: str) -> int:
        async with self.running(**changes) as process:
            return await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.append(line.decode().strip().removeprefix("ipuhub-launcher: "))


@contextlib.asynccontextmanager
async def stored_job(folder: Path, kubectl: Path, workers: int) -> AsyncIterator[Job]:
    """Yield a job on an embedded API server in `folder`; `kubectl` is what the program delivers."""
    server = DevCluster(folder / "cluster", authorization="rbac")
    await server.start()
    try:
        async with KubeClient(load_config(str(server.kubeconfig))) as client:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, build_crd())
            manifest = ipujob().workers(workers).build()
            manifest["metadata"] = {"name": "sample", "namespace": "default"}
            stored = await client.create(IPUJOBS, manifest)
            account = {"metadata": {"name": "sample-launcher", "namespace": "default"}}
            await client.create(resources.SERVICE_ACCOUNTS, account)
            await write_account_kubeconfig(
                server.kubeconfig, folder / "launcher.kubeconfig", ACCOUNT_NAME
            )
            host = mount_account(folder / "root", folder / "launcher.kubeconfig")
            environment = host | {
                "PATH": os.defpath,
                "IPUHUB_NAMESPACE": "default",
                "IPUHUB_JOB": "sample",
                "IPUHUB_JOB_UID": stored["metadata"]["uid"],
                "IPUHUB_WORKERS": str(workers),
                "IPUHUB_KUBECTL_FOLDER": str(folder / "opt"),
                "IPUHUB_KUBECTL_BINARY": str(kubectl),
                "IPUHUB_LAUNCHER_WAIT_SECONDS": "90",
            }
            yield Job(client, stored, environment)
    finally:
        await server.stop()


def mount_account(root: Path, kubeconfig: Path) -> dict[str, str]:
    """Put the account's files where a kubelet puts them, below `root`; return where the API is."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    folder = Path(f"{root}{ACCOUNT}")
    folder.mkdir(parents=True)
    (folder / "token").write_text(user["token"])
    authority = base64.b64decode(cluster["certificate-authority-data"])
    (folder / "ca.crt").write_bytes(authority)
    host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
    return {
        "IPUHUB_POD_ROOT": str(root),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }
