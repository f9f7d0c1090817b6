"""The real kube-scheduler asks the proxy about a job's pods, and places them without it, too."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from partitions.proxy.metrics import EXTENDED
from partitions.proxy.process import running
from tests.fakes.freeport import free_port
from tests.fakes.proxylab import JOB, LABEL, Lab, prepare_cluster, try_ensure
from tests.fakes.waiting import eventually
from tests.realnodes.schedulers import scheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.realnodes.kit import RealCluster

HERE = "127.0.0.1"  # where the V-IPU controller of the lab answers
KEY, _, VALUE = LABEL.partition("=")


@pytest.fixture
def space(server: RealCluster) -> Iterator[str]:
    """A namespace, and three nodes of that name that only this test sees: bare, near and host."""
    name = f"sched-{uuid4().hex[:6]}"
    server.kubectl("create", "namespace", name)
    nodes = {
        f"{name}-bare": ({"spot": "bare"}, "10.9.9.1"),
        f"{name}-near": ({KEY: VALUE}, "10.9.9.2"),
        f"{name}-host": ({KEY: VALUE}, HERE),
    }
    for node, (labels, address) in nodes.items():
        metadata = {"name": node, "labels": {"space": name, **labels}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        server.kubectl("create", "-f", "-", stdin=json.dumps(body))
        room = {"cpu": "8", "memory": "8Gi", "pods": "20"}
        addresses = [{"type": "InternalIP", "address": address}]
        status = {"status": {"capacity": room, "allocatable": room, "addresses": addresses}}
        server.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(status))
    yield name
    server.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force")
    server.kubectl("delete", "nodes", "-l", f"space={name}")
    server.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
async def lab(server: RealCluster, tmp_path: Path) -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(load_config(str(server.kubeconfig))))
        await prepare_cluster(client)
        tracker = f"tracker-{uuid4().hex[:8]}"
        lab = Lab(str(server.kubeconfig), client, tmp_path / "vipu.json", free_port(), tracker)
        lab.start_vipu()
        yield lab
        await lab.stop_vipu()
        server.kubectl("delete", "configmap", tracker, "-n", "ipuhub-system", "--ignore-not-found")
        server.kubectl("delete", "node", "proxytest", "--ignore-not-found")


def submit(cluster: RealCluster, space: str, pod: str, labels: dict[str, str], **spec: Any) -> None:
    """Create a pod for our scheduler and this test's nodes."""
    selector = {"space": space, **spec.pop("nodeSelector", {})}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod, "labels": labels},
        "spec": {
            "schedulerName": space,
            "nodeSelector": selector,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "localhost/none"}],
            **spec,
        },
    }
    cluster.create_anew(space, body)


async def node_of(cluster: RealCluster, space: str, pod: str) -> str:
    """Return the node that the pod is bound to, without the test's prefix."""

    async def bound() -> str:
        found = await asyncio.to_thread(cluster.get, "pod", pod, "-n", space)
        return str(found["spec"].get("nodeName") or "").removeprefix(f"{space}-")

    return str(await eventually(bound))


async def why_pending(cluster: RealCluster, space: str, pod: str) -> str:
    """Return the scheduler's message about a pod that it has not placed."""
    found = await asyncio.to_thread(cluster.get, "pod", pod, "-n", space)
    conditions = found["status"].get("conditions") or ()
    return " ".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")


def extended_count(verb: str, pod: str) -> float:
    return float(EXTENDED.labels(verb, pod)._value.get())


@pytest.fixture
def port() -> int:
    """Return the port at which the proxy will answer."""
    return free_port()


@pytest.fixture(params=[True, False], ids=["names", "nodes"])
def log(
    request: pytest.FixtureRequest, server: RealCluster, space: str, port: int, tmp_path: Path
) -> Iterator[Path]:
    """Yield the log of our scheduler, named like the test's namespace; it sends names, or whole
    nodes."""
    url, cached = f"http://127.0.0.1:{port}", {"nodeCacheCapable": request.param}
    with scheduler(server, url, space, tmp_path, **cached) as log:
        yield log


@pytest.mark.usefixtures("log")
async def test_kube_scheduler_asks_the_proxy_and_goes_on_without_it(
    server: RealCluster, space: str, lab: Lab, port: int
) -> None:
    of_job = {"graphcore.ai/ipujob-uid": JOB["uid"], "graphcore.ai/instance": "0"}
    options = replace(lab.options, port=port)
    async with running(options) as proxy, lab.operator(proxy) as operator:
        await eventually(lambda: try_ensure(operator))
        await eventually(lambda: proxy.nodes.find(f"{space}-host"))
        questions = [("filter", "job"), ("prioritize", "job"), ("filter", "other")]
        before = [extended_count(*question) for question in questions]
        # Without a selector of the operator: only the extender knows where the IPUs are.
        submit(server, space, "worker", of_job)
        assert await node_of(server, space, "worker") == "host"
        submit(server, space, "web", {"app": "web"})
        await node_of(server, space, "web")
        after = [extended_count(*question) for question in questions]
        assert all(now > then for now, then in zip(after, before, strict=True)), after

        # The one node that its template allows does not reach the IPUs: the pod says so.
        submit(server, space, "lost", of_job, nodeSelector={"spot": "bare"})
        want = f"1 node(s) without the label {LABEL} of the V-IPU controller"
        await eventually(lambda: why_pending(server, space, "lost"), lambda reason: want in reason)

    # Nothing answers any more: the operator's selector is all there is.
    submit(server, space, "alone", of_job, nodeSelector={KEY: VALUE})
    assert await node_of(server, space, "alone") in {"near", "host"}
    submit(server, space, "another", {"app": "web"})
    await node_of(server, space, "another")
