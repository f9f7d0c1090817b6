"""Two operators as processes, each with its own rights: one works, the other takes over."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from devcluster.demo.cluster import ACCESS_FILE, apply_file, write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES
from jobs.ipujob.names import IPUJOBS
from tests.builders.documents import our_crd
from tests.builders.ipujobs import ipujob
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.embedded_only
ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "ipuhub-system"
# Looking at the Lease this seldom would take longer than a test waits.
SELDOM = {
    "IPUHUB_LEASE_DURATION_SECONDS": "900",
    "IPUHUB_LEASE_RENEW_SECONDS": "600",
    "IPUHUB_LEASE_RETRY_SECONDS": "300",
}


@dataclass
class Replicas:
    """An embedded API that enforces rights, and operators that come and go."""

    cluster: DevCluster
    client: KubeClient
    folder: Path
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    async def start(self, name: str, **environment: str) -> asyncio.subprocess.Process:
        self.ports[name] = free_port()
        kubeconfig = self.folder / "ipuhub-operator.kubeconfig"
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                str(ROOT / "manage.py"),
                "run_operator",
                env=os.environ
                | {
                    "DJANGO_SETTINGS_MODULE": "",
                    "KUBECONFIG": str(kubeconfig),
                    "IPUHUB_IDENTITY": name,
                    "IPUHUB_HEALTH_PORT": str(self.ports[name]),
                    "IPUHUB_LEASE_DURATION_SECONDS": "6",
                    "IPUHUB_LEASE_RENEW_SECONDS": "5",
                    "IPUHUB_LEASE_RETRY_SECONDS": "0.2",
                    **environment,
                },
                stderr=log,
                stdout=log,
            )
        return self.running[name]

    async def lease(self) -> dict[str, Any]:
        with suppress(NotFound):
            return dict((await self.client.get(LEASES, "ipu-operator", SYSTEM))["spec"])
        return {}

    async def holder(self) -> str:
        return str((await self.lease()).get("holderIdentity", ""))

    async def until_leads(self, name: str) -> None:
        async def leads() -> bool:
            return await self.holder() == name

        await eventually(leads)

    async def page(self, name: str, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        try:
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until_page(self, name: str, path: str, *want: Any) -> None:
        async def has_words() -> bool:
            status, text = await self.page(name, path)
            return status == want[0] and all(word in text for word in want[1:])

        await eventually(has_words)

    async def submit(self, name: str) -> None:
        body = ipujob(name).build()
        body = {**body, "metadata": {"name": name, "namespace": "default"}}
        await self.client.create(IPUJOBS, body)

    async def is_looked_after(self, job: str) -> bool:
        """Return whether an operator has written the job's status."""
        found = await self.client.get(IPUJOBS, job, "default")
        return bool(found.get("status", {}).get("conditions"))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    cluster = DevCluster(tmp_path / "cluster", authorization="rbac")
    await cluster.start()
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await apply_file(client, ACCESS_FILE)
        account = f"{SYSTEM}/ipuhub-operator"
        await write_account_kubeconfig(client, cluster.kubeconfig, tmp_path, account)
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, our_crd())
        made = Replicas(cluster, client, tmp_path)
        yield made
        for process in made.running.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
    await cluster.stop()


async def test_the_standby_takes_over_after_a_kill_and_at_once_after_a_clean_stop(
    replicas: Replicas,
) -> None:
    first = await replicas.start("a")
    await replicas.until_leads("a")
    second = await replicas.start("b")
    await eventually(lambda: "standing by" in replicas.log("b"))
    await replicas.until_page("b", "/readyz", 200, "ok")  # it serves nothing: standing by is fine
    assert "caches are complete" not in replicas.log("b")

    first.kill()
    await first.wait()
    last = await replicas.lease()
    await replicas.submit("orphan")
    await replicas.until_leads("b")
    taken = datetime.fromisoformat((await replicas.lease())["acquireTime"])
    silent = taken - datetime.fromisoformat(last["renewTime"])
    assert 6 <= silent.total_seconds() < 20
    await eventually(lambda: replicas.is_looked_after("orphan"))
    assert "lease=ipu-operator" in replicas.log("b")

    await replicas.start("c", **SELDOM)  # with the rights it has it hears of the release
    await eventually(lambda: "standing by" in replicas.log("c"))
    second.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(second.wait(), 90) == 0
    await replicas.until_leads("c")
    await replicas.submit("next")
    await eventually(lambda: replicas.is_looked_after("next"))


async def test_a_restarted_process_takes_its_own_lease_back_at_once(replicas: Replicas) -> None:
    first = await replicas.start("a", IPUHUB_LEASE_DURATION_SECONDS="900")
    await eventually(lambda: "caches are complete" in replicas.log("a"))
    first.kill()
    await first.wait()
    await replicas.start("a", IPUHUB_LEASE_DURATION_SECONDS="900")  # longer than is waited here
    await eventually(lambda: "caches are complete" in replicas.log("a"))


async def test_who_loses_the_lease_stands_by_and_leads_again_when_it_is_free(
    replicas: Replicas,
) -> None:
    process = await replicas.start("a")
    await eventually(lambda: "caches are complete" in replicas.log("a"))
    usurped = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 900}}
    await replicas.client.patch(LEASES, "ipu-operator", usurped, SYSTEM)
    await eventually(lambda: "standing by again" in replicas.log("a"))
    await replicas.submit("waits")
    assert await replicas.page("a", "/readyz") == (200, "ok")
    assert await replicas.holder() == "somebody"
    assert not await replicas.is_looked_after("waits")

    silent = {"spec": {"leaseDurationSeconds": 1}}
    await replicas.client.patch(LEASES, "ipu-operator", silent, SYSTEM)
    await replicas.until_leads("a")
    await eventually(lambda: replicas.is_looked_after("waits"))
    lines = replicas.log("a").splitlines()
    (lost,) = [line for line in lines if "standing by again" in line]
    assert "somebody holds it now" in lost
    assert "Traceback" not in replicas.log("a")
    assert process.returncode is None


async def test_without_the_namespace_it_says_so_and_goes_on_trying(replicas: Replicas) -> None:
    role = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "all"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "ipuhub-operator", "namespace": SYSTEM}],
    }
    await replicas.client.request(
        "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body=binding
    )
    await replicas.start("a", IPUHUB_NAMESPACE="elsewhere")
    await replicas.until_page(
        "a", "/readyz", 503, "leader election:", "namespace elsewhere does not exist"
    )
    assert await replicas.page("a", "/healthz") == (200, "ok")
    assert replicas.log("a").count("namespace elsewhere does not exist") == 1
    await replicas.client.request("POST", "/api/v1/namespaces", body=role)
    await eventually(lambda: "caches are complete" in replicas.log("a"))


async def test_times_that_let_two_lead_are_refused(replicas: Replicas) -> None:
    process = await replicas.start("a", IPUHUB_LEASE_RENEW_SECONDS="6")
    assert await asyncio.wait_for(process.wait(), 90) == 1
    assert "each must be less than the previous value" in replicas.log("a")
    assert "Traceback" not in replicas.log("a")
