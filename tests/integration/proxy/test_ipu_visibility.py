"""IPUs on the nodes, as the leading proxy writes them and a command takes them away."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ipuhub.kube.errors import Forbidden, NotFound
from ipuhub.kube.leaderelection import LeaseTiming
from ipuhub.kube.resources import NODES
from ipuhub.process.leadership import LeadershipOptions
from partitions.configured import configured
from partitions.proxy.metrics import ADVERTISED
from partitions.proxy.nodes.advertising import VisibilityOptions, hide_ipus, write_changes
from partitions.proxy.nodes.visibility import (
    LABEL_FREE,
    LABEL_TOTAL,
    MARK_CAPACITY,
    MARK_OWNER,
    RESOURCE,
    NodeChange,
)
from partitions.proxy.process import running
from tests.fakes.manyobjects import ManyObjects, memory_below
from tests.fakes.proxylab import JOB, LABEL, SYSTEM, read_path, try_ensure
from tests.fakes.waiting import eventually
from usage.prober import pod_selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.client import KubeClient
    from partitions.proxy.process import ProxyOptions
    from tests.fakes.proxylab import Lab

ROOT = Path(__file__).resolve().parents[3]
KEY, _, VALUE = LABEL.partition("=")
TOTAL = 32  # eight IPU-Machines of four
STEADY = LeaseTiming(duration_seconds=60.0, renew_deadline_seconds=40.0, retry_seconds=0.05)


def showing(lab: Lab, **given: Any) -> ProxyOptions:
    owner = f"{SYSTEM}/{lab.tracker}"
    visibility = VisibilityOptions(owner=owner, look_seconds=0.05, count_seconds=0.05, **given)
    return replace(lab.options, visibility=visibility)


def led_by(lab: Lab, options: ProxyOptions, identity: str) -> ProxyOptions:
    election = LeadershipOptions(
        namespace=SYSTEM, lease=lab.tracker, identity=identity, timing=STEADY
    )
    return replace(options, election=election)


async def capacity_of(lab: Lab, name: str) -> tuple[str, str, str]:
    """Capacity, allocatable and label of a node."""
    node = await lab.client.get(NODES, name)
    status = node.get("status") or {}
    amounts = [(status.get(path) or {}).get(RESOURCE, "") for path in ("capacity", "allocatable")]
    return (*amounts, (node["metadata"].get("labels") or {}).get(LABEL_TOTAL, ""))  # type: ignore[return-value]


async def shows(lab: Lab, **nodes: tuple[str, str, str]) -> None:
    """Return once these nodes show this."""

    async def all_do() -> bool:
        found = {name: await capacity_of(lab, name.replace("_", "-")) for name in nodes}
        return found == nodes

    await eventually(all_do)


async def reset(lab: Lab, name: str) -> None:
    """Register the node again, as a restarted kubelet does."""
    zero = {"capacity": {RESOURCE: "0"}, "allocatable": {RESOURCE: "0"}}
    await lab.client.patch(NODES, name, {"status": zero}, subresource="status")


@pytest.fixture
async def second(lab: Lab) -> AsyncIterator[str]:
    """Another node that reaches the controller's IPUs."""
    name = "proxytest-2"
    metadata = {"name": name, "labels": {KEY: VALUE}}
    await lab.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    yield name
    for node in (name, "proxytest"):
        try:
            await lab.client.delete(NODES, node)
        except NotFound:
            continue


async def hide(lab: Lab) -> tuple[int, str]:
    environment = os.environ | {
        "KUBECONFIG": lab.kubeconfig,
        "IPUHUB_NAMESPACE": SYSTEM,
        "IPUHUB_TRACKER_CONFIGMAP": lab.tracker,
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "manage.py"), "hide_ipus"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, output.decode()


@pytest.mark.usefixtures("second")
async def test_capacity_on_one_node_comes_back_after_a_kubelets_reset(lab: Lab) -> None:
    number = str(TOTAL)
    async with running(showing(lab)) as proxy, lab.operator(proxy) as operator:
        await shows(lab, proxytest=(number, number, number), proxytest_2=("", "", number))
        for _ in range(2):
            await reset(lab, "proxytest")
            await shows(lab, proxytest=(number, number, number))
        await eventually(lambda: ADVERTISED.labels("proxytest")._value.get() == TOTAL)

        await eventually(lambda: try_ensure(operator))

        async def free() -> Any:
            return (await lab.client.get(NODES, "proxytest-2"))["metadata"]["labels"][LABEL_FREE]

        await eventually(free, lambda found: found == str(TOTAL - JOB["size"]))
        await operator.release(JOB["uid"], 0)
        status, text = await read_path(proxy, "/readyz")
        assert (status, text) == (200, "ok")

    # It is no part of an orderly end: another replica goes on.
    assert await capacity_of(lab, "proxytest") == (number, number, number)
    assert await hide(lab) == (0, "Nodes that no longer show IPUs: proxytest, proxytest-2.\n")
    for name in ("proxytest", "proxytest-2"):
        node = await lab.client.get(NODES, name)
        assert RESOURCE not in str(node)
        assert node["metadata"]["labels"] == {KEY: VALUE}
        assert {MARK_OWNER, MARK_CAPACITY}.isdisjoint(node["metadata"].get("annotations") or ())
    assert await hide(lab) == (0, "Nodes that no longer show IPUs: none.\n")


@pytest.mark.usefixtures("second")
async def test_only_the_leader_writes_to_nodes(lab: Lab) -> None:
    number = str(TOTAL)
    async with running(led_by(lab, lab.options, "a")) as first:
        await eventually(lambda: first.leadership.is_leading)
        async with running(led_by(lab, showing(lab), "b")) as other:
            await eventually(lambda: other.leadership.standby)
            await eventually(lambda: not other.nodes.problem)
            assert await capacity_of(lab, "proxytest") == ("", "", "")
            await first.close()
            await shows(lab, proxytest=(number, number, number))
    assert (await hide(lab))[0] == 0


class Refusing:
    """An API server that refuses writes to the nodes of these names."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.written: list[str] = []

    async def patch(self, _: Any, name: str, *_patch: Any, **_given: Any) -> None:
        if name in self.refused:
            raise Forbidden(403, "Forbidden", f'nodes "{name}" is forbidden')
        self.written.append(name)


async def test_a_refused_write_is_said_and_stops_no_other() -> None:
    api = Refusing("a")
    changes = [NodeChange(name, {"metadata": {}}, {"status": {}}) for name in "ab"]
    for _ in range(2):
        problem = await write_changes(cast("KubeClient", api), changes)
        assert problem == 'node a: nodes "a" is forbidden'
    assert api.written == ["b"] * 4


async def test_one_setting_reaches_proxy_and_prober(lab: Lab, settings: Any) -> None:
    settings.KUBECONFIG, settings.KUBE_CONTEXT, settings.NAMESPACE = lab.kubeconfig, "", SYSTEM
    assert configured("127.0.0.1", 0).visibility is None
    assert pod_selection(None).has_ipu_requests
    settings.IPU_VISIBILITY = settings.IPU_VISIBILITY_ON_MASTER = True
    want = VisibilityOptions(owner=f"{SYSTEM}/ipu-partitions-tracker", on_masters=True)
    assert configured("127.0.0.1", 0).visibility == want
    assert not pod_selection(None).has_ipu_requests


async def test_thousands_of_nodes_are_looked_through_in_the_little_memory_of_the_hook() -> None:
    def large_node(number: int) -> dict[str, Any]:
        return {"metadata": {"name": f"n{number}"}, "status": {"images": f"{number:010000}"}}

    with memory_below(15_000_000):  # in full they are 40 MB
        assert await hide_ipus(ManyObjects(4_000, large_node), "owner") == ([], "")
