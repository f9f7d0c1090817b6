"""Controllers that the embedded cluster does not run itself: volume claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.devcluster.integration.kubelet.conftest import NAMESPACE, TRAPPED
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.devcluster.integration.kubelet.conftest import Cluster

pytestmark = pytest.mark.embedded_only  # a full cluster has its own


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
