"""Installing the chart on a cluster, by the kit's helm or another helm beside it."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipuhub.times import read_time

if TYPE_CHECKING:
    from tests.devcluster.conformance.servers import Server
    from tests.realnodes.kit import RealCluster

ROOT = Path(__file__).resolve().parents[2]
CHART = "charts/ipuhub"
IMAGES = Path(os.environ.get("IPUHUB_TEST_IMAGES", ROOT / "dist/images"))
BIN = Path(os.environ.get("CLUSTER_BIN", ""))
# What the trial values install.
COMPONENTS = {
    "controller-manager", "vipu-proxy", "webhook", "prober", "monitor", "worker", "beat", "web",
    "vipu-server", "database",
}  # fmt: skip
IMAGE_NAMES = ("ipuhub", "ipuhub-launcher", "ipuhub-postgres")
# What installs on real nodes: the kit's, or another by its path.
HELM = os.environ.get("IPUHUB_TEST_HELM", "helm")
# The kit's, and Helm 3 where somebody has built it (docs/developer/chart.md).
HELM3 = Path(os.environ.get("HELM3") or BIN / "helm3")
HELMS = ["helm", *([str(HELM3)] if HELM3.exists() else [])]


class Helm:
    """A helm on one cluster, in one namespace."""

    def __init__(self, cluster: RealCluster | Server, namespace: str, program: str = HELM) -> None:
        self.namespace = namespace
        self._environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        self._program = str(BIN / program)

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm in the release's namespace."""
        done = subprocess.run(
            [self._program, *arguments, "-n", self.namespace],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


def make_restricted(cluster: RealCluster, *namespaces: str) -> None:
    """Make namespaces that take pods of the restricted Pod Security Standard only."""
    for name in namespaces:
        cluster.kubectl("create", "namespace", name)
        enforced = "pod-security.kubernetes.io/enforce=restricted"
        cluster.kubectl("label", "namespace", name, enforced)


def refused_pods(cluster: RealCluster, namespace: str) -> list[str]:
    """Return the reasons why pods of a namespace could not be created, by its events."""
    found = cluster.get("events", "-n", namespace, "--field-selector", "reason=FailedCreate")
    return [str(event["message"]) for event in found["items"]]


@cache  # importing an image takes a node 13 s, every time
def load_image(cluster: RealCluster, name: str) -> None:
    """Put an image of the product, as `make images` builds it, onto every node, once."""
    cluster.load(IMAGES / f"{name}.tar")


def load_images(cluster: RealCluster) -> None:
    """Put all of them onto every node, beside each other: half of an import waits for the disk."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(load_image, cluster), IMAGE_NAMES))


def local_volume(name: str, folder: Path) -> str:
    """A volume and its class: a folder of a node that root owns, as a new file system is root's.

    Its group is the kubelet's work, as with volumes of a cloud.
    """
    node = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
    }
    kind = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    claimed = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [kind, claimed]})


def end_jobs(cluster: RealCluster) -> None:
    """Delete all IPUJobs although no operator is left to release them."""
    cluster.kubectl("delete", "ipujobs", "--all", "-A", "--wait=false", check=False)
    for job in cluster.get("ipujobs", "-A")["items"]:
        meta = job["metadata"]
        patch = ("--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        where = ("-n", meta["namespace"])
        cluster.kubectl("patch", "ipujob", meta["name"], *where, *patch, check=False)


def rows(cluster: RealCluster, release: str, namespace: str, query: str) -> list[str]:
    """The rows of a query in the database that a release has installed."""
    ask = f'PGPASSWORD=$(cat /run/ipuhub/password) psql -h 127.0.0.1 -U ipuhub -Atc "{query}"'
    where = ("exec", f"{release}-ipu-operator-database-0", "-n", namespace, "--")
    return cluster.kubectl(*where, "sh", "-c", ask).splitlines()


def component_of(pod: dict[str, Any]) -> str:
    """The component of the chart that a pod is of."""
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def seconds_until_ready(pods: list[dict[str, Any]]) -> dict[str, int]:
    """By component, from the start of its pod on a node, in whole seconds as Kubernetes has it."""
    found = {}
    for pod in pods:
        (ready,) = (each for each in pod["status"]["conditions"] if each["type"] == "Ready")
        began = read_time(pod["status"]["startTime"])
        ended = read_time(ready["lastTransitionTime"])
        found[component_of(pod)] = int((ended - began).total_seconds())
    return found
