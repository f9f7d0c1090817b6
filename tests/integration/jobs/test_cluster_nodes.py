"""Jobs on nodes that go NotReady, and an operator that may not look at nodes."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing
import yaml

from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.events import EventRecorder
from ipuhub.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    NAMESPACES,
    NODES,
    SERVICE_ACCOUNTS,
)
from ipuhub.times import utc_now
from jobs.operator.operator import Operator, OperatorOptions
from tests.builders.ipujobs import ipujob
from tests.builders.kubeconfigs import write_account_kubeconfig
from tests.fakes.partitions import FakePartitions
from tests.fakes.waiting import eventually
from tests.integration.jobs.conftest import HealthLog

if TYPE_CHECKING:
    from tests.integration.jobs.conftest import Cluster

pytestmark = pytest.mark.embedded_only  # a real kubelet puts its node's conditions right at once
ACCESS = Path(__file__).parents[3] / "devcluster/demo/manifests/access.yaml"


async def set_ready(cluster: Cluster, name: str, status: str, reason: str) -> None:
    ready = {"type": "Ready", "status": status, "reason": reason}
    patch = {"status": {"conditions": [ready]}}
    await cluster.client.patch(NODES, name, patch, subresource="status")


async def test_a_node_that_goes_notready_is_told_at_once_and_when_it_is_back(
    cluster: Cluster,
) -> None:
    await cluster.create(ipujob().workers(2).build())
    await cluster.until_state("sample", "Running")
    node = (await cluster.pods())["sample-worker-0"]["spec"]["nodeName"]
    await set_ready(cluster, node, "False", "KubeletNotReady")
    message = await cluster.until_reason("sample", "NodeNotReady")
    assert message.startswith(f"Node {node} went NotReady (KubeletNotReady), with ")
    assert "sample-worker-0" in message
    pods = await cluster.pods()  # nobody has marked them: the node itself was looked at
    conditions = pods["sample-worker-0"]["status"]["conditions"]
    assert {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()

    async def has_warning() -> bool:
        events = (await cluster.client.list(EVENTS, cluster.namespace)).items
        return ("NodeNotReady", "Warning") in {(e["reason"], e["type"]) for e in events}

    await eventually(has_warning)
    await set_ready(cluster, node, "True", "KubeletReady")
    await cluster.until_reason("sample", "IPUJobRunning")


async def test_without_the_right_to_see_nodes_it_works_and_says_so_once(
    tmp_path: Path,
) -> None:
    server = DevCluster(tmp_path / "cluster", authorization="rbac")
    await server.start()
    try:
        async with KubeClient(load_config(str(server.kubeconfig))) as admin:
            await grant_all_but_nodes(admin)
        await write_account_kubeconfig(
            server.kubeconfig, tmp_path / "operator", "ipuhub-system/ipuhub-operator"
        )
        async with KubeClient(load_config(str(tmp_path / "operator"))) as client:
            health = HealthLog()
            recorder = EventRecorder(client, "ipu-operator", utc_now)
            operator = Operator(client, FakePartitions(), recorder, health, OperatorOptions())
            with structlog.testing.capture_logs() as entries:
                work = asyncio.create_task(operator.run())
                await eventually(lambda: "forbidden" in health.notes.get("nodes", ""))
                assert "jobs learn of a NotReady node from their pods" in health.notes["nodes"]
                await eventually(lambda: operator.informers["pods"].synced)
                assert operator.caches.node_trouble("node-0") == ""
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
    finally:
        await server.stop()
    resources = [line["resource"] for line in entries if line["event"] == "cannot follow"]
    assert resources.count("nodes") == 1


async def grant_all_but_nodes(admin: KubeClient) -> None:
    """The operator's account with the demo's rights, less that right."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(ACCESS.read_text(encoding="utf-8")))
    wanted = {"Namespace": NAMESPACES, "ServiceAccount": SERVICE_ACCOUNTS}
    wanted |= {"ClusterRole": CLUSTER_ROLES, "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS}
    for document in documents:
        if document["metadata"]["name"] in {"ipuhub-system", "ipuhub-operator"}:
            if document["kind"] == "ClusterRole":
                rules = [r for r in document["rules"] if r["resources"] != ["nodes"]]
                assert len(rules) == len(document["rules"]) - 1
                document["rules"] = rules
            if document["kind"] in wanted:
                await admin.create(wanted[document["kind"]], document)
