"""IPUs on real nodes: the proxy, with the chart's rights alone, and a kubelet that resets them."""

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
from ipuhub.kube.resources import NODES
from partitions.proxy.nodes.advertising import VisibilityOptions, hide_ipus
from partitions.proxy.nodes.visibility import LABEL_TOTAL, RESOURCE
from partitions.proxy.process import running
from tests.chart.rendering import VIPU, render
from tests.fakes.freeport import free_port
from tests.fakes.proxylab import SYSTEM, Lab, read_path
from tests.fakes.waiting import eventually
from tests.realnodes.schedulers import account

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from partitions.proxy.process import ProxyOptions
    from tests.realnodes.kit import RealCluster

TOTAL = "32"
ZERO = {"status": {path: {RESOURCE: "0"} for path in ("capacity", "allocatable")}}
LABEL = "shows-ipus=here"  # of no other test: the nodes are shared


@pytest.fixture
def labelled(server: RealCluster) -> Iterator[list[str]]:
    """The real nodes, with the label of the test's controller."""
    names = [node["metadata"]["name"] for node in server.get("nodes")["items"]]
    names = sorted(name for name in names if name.startswith("node-"))
    assert len(names) > 1, "a cluster with two real nodes is needed"
    # A node that is not ready shows no IPUs in another's place.
    server.kubectl("wait", "nodes", *names, "--for=condition=Ready", "--timeout=60s")
    server.kubectl("label", "nodes", *names, "--overwrite", LABEL)
    yield names
    server.kubectl("label", "nodes", *names, "shows-ipus-")


@pytest.fixture
async def options(server: RealCluster, tmp_path: Path) -> AsyncIterator[ProxyOptions]:
    """A proxy of the chart's account with `ipuVisibility.enabled`, and a V-IPU controller."""
    documents = render(VIPU, "ipuVisibility.enabled=true", release="seen", namespace=SYSTEM)
    async with AsyncExitStack() as stack:
        rights = account(server, tmp_path, documents, "vipu-proxy", "ipu-visibility")
        kubeconfig = stack.enter_context(rights)
        client = await stack.enter_async_context(KubeClient(load_config(str(server.kubeconfig))))
        tracker = f"tracker-{uuid4().hex[:8]}"
        lab = Lab(str(kubeconfig), client, tmp_path / "vipu.json", free_port(), tracker)
        lab.start_vipu()
        visibility = VisibilityOptions(owner=f"{SYSTEM}/{tracker}", look_seconds=0.2)
        controllers = f"127.0.0.1:{lab.vipu_port}:{LABEL}"
        yield replace(lab.options, controllers=controllers, visibility=visibility)
        await lab.stop_vipu()
        await hide_ipus(client, visibility.owner)  # else no other owner may show any
        server.kubectl("delete", "configmap", tracker, "-n", SYSTEM, "--ignore-not-found")


def kubelet_of(server: RealCluster, node: str) -> KubeClient:
    """Return a client with the rights of a kubelet."""
    return KubeClient(load_config(str(server.folder / f"{node}.kubeconfig")))


async def shows(server: RealCluster, **nodes: tuple[str, str, str]) -> None:
    """Return once capacity, allocatable and label of these nodes are so."""

    async def are_so() -> Any:
        found = {}
        for name in nodes:
            node = await asyncio.to_thread(server.get, "node", name.replace("_", "-"))
            amounts = [node["status"][path].get(RESOURCE) for path in ("capacity", "allocatable")]
            found[name] = (*amounts, node["metadata"]["labels"].get(LABEL_TOTAL))
        return found

    await eventually(are_so, lambda found: found == nodes)


async def test_capacity_survives_a_kubelet_that_resets_it(
    server: RealCluster, labelled: list[str], options: ProxyOptions
) -> None:
    first, second = (name.replace("-", "_") for name in labelled[:2])
    number, bare = (TOTAL, TOTAL, TOTAL), (None, None, TOTAL)
    async with running(options) as proxy:
        await shows(server, **{first: number, second: bare})
        assert await read_path(proxy, "/readyz") == (200, "ok")  # no right is missing

    # Without a proxy: the kubelet begins anew, and resets what no device plugin has shown it.
    await asyncio.to_thread(server.kill, labelled[0].replace("node", "kubelet"))
    async with kubelet_of(server, labelled[0]) as kubelet:
        await kubelet.patch(NODES, labelled[0], ZERO, subresource="status")
    await shows(server, **{first: ("0", "0", TOTAL)})

    async with running(options):
        await shows(server, **{first: number, second: bare})
        # The kubelet's next report leaves it as it is.
        await asyncio.to_thread(server.kill, labelled[0].replace("node", "kubelet"))
        await shows(server, **{first: number, second: bare})
        server.kubectl("cordon", labelled[0])
        try:
            await shows(server, **{first: bare, second: number})
            async with kubelet_of(server, labelled[0]) as kubelet:  # it had read the number before
                await kubelet.patch(NODES, labelled[0], ZERO, subresource="status")
            await shows(server, **{first: bare, second: number})
        finally:
            server.kubectl("uncordon", labelled[0])
    async with KubeClient(load_config(str(server.kubeconfig))) as client:
        owner = options.visibility.owner if options.visibility else ""
        assert await hide_ipus(client, owner) == (sorted(labelled), "")
    await shows(server, **{first: (None, None, None), second: (None, None, None)})
    assert RESOURCE not in json.dumps(server.get("nodes"))
