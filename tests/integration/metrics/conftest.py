"""An embedded API that enforces rights, with accounts that may and may not read metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import pytest

from devcluster.demo.cluster import ACCESS_FILE, apply_file, refresh_token, write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, SERVICE_ACCOUNTS
from tests.builders.documents import our_crd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SYSTEM = "ipuhub-system"
MONITORING = "monitoring"


@dataclass
class Accounts:
    """The cluster, and tokens: of `reader`, bound to ipuhub-metrics-reader, and of `stranger`."""

    cluster: DevCluster
    client: KubeClient
    folder: Path
    tokens: dict[str, Path]

    def token(self, name: str) -> str:
        return self.tokens[name].read_text().strip()

    async def kubeconfig(self, account: str) -> Path:
        place = f"{SYSTEM}/{account}"
        return await write_account_kubeconfig(
            self.client, self.cluster.kubeconfig, self.folder, place
        )


async def scrape(url: str, token: str = "") -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of a GET."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.read(), dict(answer.headers)


@pytest.fixture
async def accounts(tmp_path: Path) -> AsyncIterator[Accounts]:
    cluster = DevCluster(tmp_path / "cluster", authorization="rbac")
    await cluster.start()
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await apply_file(client, ACCESS_FILE)
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, our_crd())
        await client.create(NAMESPACES, {"metadata": {"name": MONITORING}})
        tokens = {}
        for name in ("reader", "stranger"):
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, MONITORING)
            tokens[name] = await refresh_token(client, tmp_path, f"{MONITORING}/{name}")
        await bind_reader(client)
        yield Accounts(cluster, client, tmp_path, tokens)
    await cluster.stop()


async def bind_reader(client: KubeClient) -> None:
    """Bind the shipped ClusterRole, as docs/admin says."""
    group = "rbac.authorization.k8s.io"
    body = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "ipuhub-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": MONITORING}],
    }
    await client.request("POST", f"/apis/{group}/v1/clusterrolebindings", body=body)
