"""A release named as in Graphcore's pages, and its state in a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from tests.realnodes.kit import RealCluster

NAMESPACE = "published"
NAME = "gc-ipu-operator"
PROXY = f"{NAME}-vipu-proxy"
LEASES = {
    "controller-manager": "ipu-operator",
    "vipu-proxy": "ipuhub-proxy",
    "prober": "ipuhub-prober",
}
# Of each leader two; what has one replica is on the node that stays.
STAYS, GOES = "node-1", "node-2"
_ALONE = ("vipuServer", "admissionWebhooks", "monitor", "worker", "beat", "web")
_SPARE = {"key": "ipuhub.io/spare", "operator": "Exists"}
TAINT = ("taint", "nodes", GOES, "--overwrite", f"{_SPARE['key']}=yes:NoSchedule")
_REPLICATED = {
    "controller.replicas": 2,
    "vipuProxy.replicas": 2,
    "prober.replicas": 2,
    "vipuServerAddr": "",
    "vipuServer.enabled": True,
    "database.enabled": True,
    "database.persistent": False,
    **{f"{part}tolerations": [_SPARE] for part in ("", "controller.", "prober.")},
    **{f"{part}.nodeSelector": {"kubernetes.io/hostname": STAYS} for part in _ALONE},
}
REPLICATED = tuple(
    word
    for key, value in _REPLICATED.items()
    for word in ("--set-json", f"{key}={json.dumps(value)}")
)


def ready_pods(cluster: RealCluster, component: str = "vipu-proxy") -> dict[str, str]:
    """The ready pods of a component, and their nodes."""
    label = f"app.kubernetes.io/component={component}"
    found = cluster.get("pods", "-n", NAMESPACE, "-l", label)["items"]
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
        and all(each["ready"] for each in pod["status"].get("containerStatuses") or [{"ready": 0}])
    }


def is_called_ready(cluster: RealCluster, pod: str) -> bool:
    """Return whether Kubernetes takes a pod for ready, which it does until its node is NotReady."""
    conditions = cluster.get("pod", pod, "-n", NAMESPACE)["status"]["conditions"]
    return ("Ready", "True") in {(each["type"], each["status"]) for each in conditions}


def leader(cluster: RealCluster, component: str) -> str:
    """The pod that holds the Lease."""
    lease = cluster.get("lease", f"{NAME}-{LEASES[component]}", "-n", NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]


def lead_on(cluster: RealCluster, node: str) -> None:
    """Return once each component has a pod on both nodes, and leads on this node."""
    for component in LEASES:
        wait_until(lambda one=component: _leads_on(cluster, one, node), f"{component} on {node}")


def _leads_on(cluster: RealCluster, component: str, node: str) -> bool:
    """Return whether it is so; a leader on the other node is ended, whichever pod follows it."""
    there = ready_pods(cluster, component)
    if set(there.values()) != {STAYS, GOES}:
        return False
    first = leader(cluster, component)
    if first in there and there[first] != node:
        cluster.kubectl("delete", "pod", first, "-n", NAMESPACE, "--wait=false")
    return there.get(first) == node


def job(cluster: RealCluster, name: str) -> dict[str, Any]:
    return dict(cluster.get("ipujob", name, "-n", NAMESPACE))


def until(cluster: RealCluster, name: str, status: str) -> dict[str, Any]:
    """The job, once it has this status."""

    def reached() -> dict[str, Any] | None:
        found = job(cluster, name)
        launcher_status = (found.get("status") or {}).get("launcherStatus")
        return found if launcher_status == status else None

    return dict(wait_until(reached, f"{name} {status}"))


def python_in(cluster: RealCluster, pod: str, script: str) -> str:
    """Return the output of a Python program in a pod."""
    return cluster.kubectl("exec", "-n", NAMESPACE, pod, "--", "python3", "-c", script)


def partition_phases(cluster: RealCluster, uid: str) -> set[str]:
    return {entry["phase"] for entry in _tracked(cluster, uid)}


def held(cluster: RealCluster, uid: str = "") -> int:
    """IPUs of a job's partitions by the tracker, or of all jobs'."""
    return sum(each["size"] for each in _tracked(cluster, uid) if each["phase"] != "released")


def _tracked(cluster: RealCluster, uid: str) -> list[dict[str, Any]]:
    tracker = cluster.get("configmap", "ipu-partitions-tracker", "-n", NAMESPACE)
    entries = (tracker.get("data") or {}).items()
    return [json.loads(entry) for key, entry in entries if key.startswith(uid)]


def recorded(cluster: RealCluster, uid: str) -> str:
    """The job's status in the database, which the prober writes."""
    query = f"select status from jobs_jobrecord where uid = '{uid}'"
    ask = f'PGPASSWORD=$(cat /run/ipuhub/password) psql -h 127.0.0.1 -U ipuhub -Atc "{query}"'
    where = ("exec", f"{NAME}-database-0", "-n", NAMESPACE, "--")
    return cluster.kubectl(*where, "sh", "-c", ask).strip()


def serving(cluster: RealCluster) -> list[str]:
    """The pods behind the Service."""
    slices = cluster.get(
        "endpointslices", "-n", NAMESPACE, "-l", f"kubernetes.io/service-name={PROXY}"
    )["items"]
    ends = [end for each in slices for end in each.get("endpoints") or []]
    return [end["targetRef"]["name"] for end in ends if end["conditions"]["ready"]]


def used(cluster: RealCluster) -> int:
    """Return the totals of all jobs from /stats; -1 while no pod serves."""
    return int(stats(cluster).get("total", {}).get("used", -1))


def stats(cluster: RealCluster) -> dict[str, Any]:
    """Return /stats by the Service, through the API server; empty while no pod serves."""
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{PROXY}:http/proxy/stats"
    done = cluster.try_kubectl("get", "--raw", path)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}
