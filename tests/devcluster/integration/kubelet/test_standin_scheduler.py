"""The stand-in scheduler: pods get nodes, or a reason why not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ipuhub.kube.resources import EVENTS, NODES
from tests.devcluster.integration.kubelet.conftest import NAMESPACE, TRAPPED
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.devcluster.integration.kubelet.conftest import Cluster


def unschedulable(pod: Any) -> str:
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            assert one["reason"] == "Unschedulable"
            return str(one["message"])
    return ""


async def test_a_pod_goes_to_the_node_that_its_selector_names(cluster: Cluster) -> None:
    options = await cluster.start(labels={"test": cluster.suffix, "number": "{i}"})
    await cluster.create_pod("picky", command=TRAPPED, nodeSelector={"number": "1"})
    pod = await cluster.until_phase("picky", "Running")
    assert pod["spec"]["nodeName"] == options.node_names()[1]
    scheduled = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    assert scheduled["status"] == "True"


async def test_a_pod_that_fits_nowhere_says_so_until_a_node_fits(cluster: Cluster) -> None:
    options = await cluster.start()
    await cluster.create_pod("picky", command=TRAPPED, nodeSelector={"late": cluster.suffix})
    message = unschedulable(await cluster.pod_until("picky", unschedulable))
    assert message.startswith("0/")
    assert "node(s) didn't match node selector" in message

    async def events() -> list[Any]:
        found = await cluster.client.list(EVENTS, NAMESPACE)
        name = cluster.name("picky")
        return [one for one in found.items if one["involvedObject"]["name"] == name]

    [event] = await eventually(events)
    assert (event["type"], event["reason"]) == ("Warning", "FailedScheduling")
    assert event["message"] == message
    labels = {"metadata": {"labels": {"late": cluster.suffix}}}
    await cluster.client.patch(NODES, options.node_names()[0], labels)
    await cluster.until_phase("picky", "Running")


async def test_a_full_node_takes_the_next_pod_when_one_ends(cluster: Cluster) -> None:
    await cluster.start(nodes=1, cpu="2")
    wish = [
        {
            "name": "main",
            "image": "main:1",
            "command": TRAPPED,
            "resources": {"requests": {"cpu": "1500m"}},
        }
    ]
    await cluster.create_pod("first", containers=wish)
    await cluster.until_phase("first", "Running")
    await cluster.create_pod("second", containers=wish)
    pod = await cluster.pod_until("second", unschedulable)
    assert "1 Insufficient cpu" in unschedulable(pod)
    await cluster.delete_pod("first")
    await cluster.until_phase("second", "Running")


async def test_a_burst_never_puts_more_pods_on_a_node_than_it_takes(cluster: Cluster) -> None:
    options = await cluster.start(nodes=3, pods=5)
    await asyncio.gather(
        *(cluster.create_pod(f"p{number}", command=TRAPPED) for number in range(18))
    )

    async def look() -> list[Any]:
        return [await cluster.pod(f"p{number}") for number in range(18)]

    def settled(pods: list[Any]) -> bool:
        # The sentence follows the nodes: at first not all three of them may be full, or known.
        return all(
            pod["spec"].get("nodeName") or "3 Too many pods" in unschedulable(pod) for pod in pods
        )

    pods = await eventually(look, settled)
    places = [pod["spec"].get("nodeName") for pod in pods]
    assert [places.count(node) for node in options.node_names()] == [5, 5, 5]


async def test_a_pod_of_another_scheduler_is_left_alone(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create_pod("other", schedulerName="somebody-else")
    await cluster.create_pod("ours", sim={"runtime-seconds": "0"})
    await cluster.until_phase("ours", "Succeeded")
    other = await cluster.pod("other")
    assert "nodeName" not in other["spec"]
    assert not unschedulable(other)


async def test_a_node_stored_without_a_spec_takes_pods_like_any_other(cluster: Cluster) -> None:
    await cluster.start()
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": cluster.name("bare")}}
    await cluster.client.create(NODES, bare)
    room = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
    await cluster.client.patch(NODES, cluster.name("bare"), room, subresource="status")
    await cluster.create_pod("picky", command=TRAPPED, nodeSelector={"late": cluster.suffix})
    await cluster.pod_until("picky", unschedulable)
    labels = {"metadata": {"labels": {"late": cluster.suffix}}}
    await cluster.client.patch(NODES, cluster.name("bare"), labels)
    pod = await cluster.pod_until("picky", lambda found: found["spec"].get("nodeName"))
    assert pod["spec"]["nodeName"] == cluster.name("bare")
