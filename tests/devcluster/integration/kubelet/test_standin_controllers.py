"""What the embedded cluster has no controllers for: silent nodes, their pods, volume claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.devcluster.integration.kubelet.conftest import NAMESPACE, TRAPPED
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.devcluster.integration.kubelet.conftest import Cluster

pytestmark = pytest.mark.embedded_only  # a full cluster has its own
DOWN = {"metadata": {"annotations": {"sim/down": "true"}}}
UP = {"metadata": {"annotations": {"sim/down": None}}}


def ready_of(node: Any) -> str:
    conditions = node["status"].get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


def conditions_of(pod: Any) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    found = pod["status"].get("conditions") or ()
    none = dict.fromkeys(("Ready", "ContainersReady"), ("", ""))
    return none | {one["type"]: (one["status"], one.get("reason", "")) for one in found}


def taints_of(node: Any) -> set[tuple[str, str]]:
    return {(one["key"], one["effect"]) for one in node["spec"].get("taints") or ()}


async def test_a_dead_node_is_marked_and_its_pods_are_deleted(cluster: Cluster) -> None:
    options = await cluster.start(
        nodes=1, lifecycle=True, lease_seconds=0.2, dead_after_seconds=4.0, eviction_seconds=0.5
    )
    name = options.node_names()[0]

    async def node() -> Any:
        return await cluster.client.get(NODES, name)

    await cluster.create_pod("job", command=TRAPPED)
    await cluster.until_phase("job", "Running")
    await cluster.client.patch(NODES, name, DOWN)
    dead = await eventually(node, lambda one: ready_of(one) == "Unknown")
    ready = next(one for one in dead["status"]["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "NodeStatusUnknown"
    dead = await eventually(node, taints_of)
    unreachable = "node.kubernetes.io/unreachable"
    assert taints_of(dead) == {(unreachable, "NoSchedule"), (unreachable, "NoExecute")}
    pod = await cluster.pod_until("job", lambda one: one["metadata"].get("deletionTimestamp"))
    assert pod["status"]["phase"] == "Running", "nobody is there to end it"
    await cluster.client.patch(NODES, name, UP)
    await cluster.until_gone("job")
    back = await eventually(node, lambda one: ready_of(one) == "True" and not taints_of(one))
    assert back["metadata"]["name"] == name


async def test_a_pod_on_a_silent_node_is_not_ready_until_its_node_is_back(cluster: Cluster) -> None:
    """As a real node controller does it: the pod's Ready alone, and without a reason."""
    options = await cluster.start(nodes=1, lifecycle=True, lease_seconds=0.2, dead_after_seconds=2)
    (name,) = options.node_names()
    await cluster.create_pod("job", command=TRAPPED)
    before = await cluster.pod_until("job", lambda one: conditions_of(one)["Ready"] == ("True", ""))
    await cluster.client.patch(NODES, name, DOWN)
    pod = await cluster.pod_until("job", lambda one: conditions_of(one)["Ready"] == ("False", ""))
    assert pod["status"]["phase"] == "Running"
    assert conditions_of(pod)["ContainersReady"] == conditions_of(before)["ContainersReady"]
    await cluster.client.patch(NODES, name, UP)
    await cluster.pod_until("job", lambda one: conditions_of(one)["Ready"] == ("True", ""))


async def test_pods_of_a_deleted_node_are_removed(cluster: Cluster) -> None:
    # Renewed often: else the node is silent, too, before it is deleted.
    options = await cluster.start(
        nodes=1, lifecycle=True, lease_seconds=0.2, dead_after_seconds=3.0
    )
    await cluster.create_pod("job", command=TRAPPED)
    await cluster.until_phase("job", "Running")
    await cluster.client.delete(NODES, options.node_names()[0])
    await cluster.until_gone("job")


def claim(name: str, size: str = "5Gi", **more: Any) -> Any:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": more.pop("annotations", {})},
        "spec": spec | more,
    }


async def test_a_pod_runs_once_its_claim_is_bound_to_the_volume_that_is_there(
    cluster: Cluster,
) -> None:
    await cluster.start(claims=True)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "nfs"},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "slow",
            "nfs": {"server": "nfs.example.com", "path": "/"},
        },
    }
    await cluster.client.create(PERSISTENT_VOLUMES, volume)
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await cluster.create_pod("job", command=TRAPPED, volumes=mount)
    await cluster.pod_until("job", lambda pod: "not found" in str(pod["status"].get("conditions")))
    await cluster.client.create(
        PERSISTENT_VOLUME_CLAIMS, claim("data", storageClassName=""), NAMESPACE
    )
    await cluster.until_phase("job", "Running")
    bound = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "data", NAMESPACE)
    assert bound["status"]["phase"] == "Bound"
    assert bound["spec"]["volumeName"] == "nfs"

    async def nfs() -> Any:
        return await cluster.client.get(PERSISTENT_VOLUMES, "nfs")

    held = await eventually(nfs, lambda one: one["status"].get("phase") == "Bound")
    assert held["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", NAMESPACE)
    kept = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "data", NAMESPACE)
    assert kept["metadata"]["deletionTimestamp"]  # it goes when no pod mounts it any more
    await cluster.delete_pod("job")
    free = await eventually(nfs, lambda one: one["status"].get("phase") == "Available")
    assert "claimRef" not in free["spec"]


async def test_a_claim_without_a_volume_gets_one_that_goes_with_it(cluster: Cluster) -> None:
    await cluster.start(claims=True)
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim("scratch"), NAMESPACE)

    async def volumes() -> list[Any]:
        return (await cluster.client.list(PERSISTENT_VOLUMES)).items

    [made] = await eventually(
        volumes, lambda found: [one for one in found if one.get("status", {}).get("phase")]
    )
    assert made["spec"]["capacity"] == {"storage": "5Gi"}
    await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "scratch", NAMESPACE)
    await eventually(volumes, lambda found: not found)


async def test_a_claim_that_is_to_stay_unbound_keeps_its_pod_waiting(cluster: Cluster) -> None:
    await cluster.start(claims=True)
    held = claim("held", annotations={"sim/unbound": "true"})
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, held, NAMESPACE)
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "held"}}]
    await cluster.create_pod("job", command=TRAPPED, volumes=mount)
    await cluster.pod_until(
        "job",
        lambda pod: (
            "pod has unbound immediate PersistentVolumeClaims"
            in str(pod["status"].get("conditions"))
        ),
    )
    release = {"metadata": {"annotations": {"sim/unbound": None}}}
    await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "held", release, NAMESPACE)
    await cluster.until_phase("job", "Running")
