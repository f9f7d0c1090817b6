"""A kube-scheduler of our configuration beside a cluster, and nodes that only it needs."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.fakes.freeport import free_port
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

CONFIGURATION = Path("charts/ipuhub/files/scheduler.yaml")
NAMESPACE = "ipuhub-system"
ACCOUNT = "ipuhub-scheduler"


def configuration(url: str, name: str, kubeconfig: Path) -> dict[str, Any]:
    """What the chart gives its scheduler, for one outside of the cluster."""
    text = CONFIGURATION.read_text("utf-8")
    values = {"PROXY_URL": url, "SCHEDULER_NAME": name, "LEASE_NAMESPACE": NAMESPACE}
    for word, value in (values | {"LEASE_NAME": name}).items():
        text = text.replace(word, value)
    return {**yaml.safe_load(text), "clientConnection": {"kubeconfig": str(kubeconfig)}}


@contextmanager
def scheduler(cluster: RealCluster, url: str, name: str, folder: Path) -> Iterator[Path]:
    """Run one until the end; yields its log. It has the rights of the chart's account only."""
    program = shutil.which("kube-scheduler")
    assert program is not None, "kube-scheduler must be on the PATH, as DIR/env of the kit has it"
    kubeconfig = _account(cluster, name, folder)
    file, log = folder / "scheduler.json", folder / "scheduler.log"
    file.write_text(json.dumps(configuration(url, name, kubeconfig)))
    command = [program, f"--config={file}", f"--secure-port={free_port()}", "--v=4"]
    with log.open("wb") as output:
        running = subprocess.Popen(
            [*command, "--bind-address=127.0.0.1", f"--cert-dir={folder}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: "successfully acquired lease" in log.read_text().lower(), "the Lease")
        yield log
    finally:
        running.terminate()
        running.wait(30)
        for binding in (name, f"{name}-volumes"):
            cluster.kubectl("delete", "clusterrolebinding", binding, "--ignore-not-found")
        for kind in ("rolebinding", "role"):
            cluster.kubectl("delete", kind, name, "-n", NAMESPACE, "--ignore-not-found")
    assert "is forbidden" not in log.read_text()


def _account(cluster: RealCluster, name: str, folder: Path) -> Path:
    """The account, its rights, and a kubeconfig with its token."""
    if cluster.find("namespace", NAMESPACE) is None:
        cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_rights(name)))
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE).strip()
    found = yaml.safe_load(cluster.kubeconfig.read_text("utf-8"))
    found["users"] = [{"name": found["users"][0]["name"], "user": {"token": token}}]
    made = folder / "scheduler.kubeconfig"
    made.write_text(yaml.safe_dump(found))
    return made


def _rights(name: str) -> list[dict[str, Any]]:
    """An account with the built-in roles of a scheduler, and its Lease."""
    rbac = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]
    inside = {"name": name, "namespace": NAMESPACE}
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rules = [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [name], "verbs": ["get", "update"]},
    ]

    def binding(kind: str, metadata: dict[str, str], role: str) -> dict[str, Any]:
        reference = {"apiGroup": rbac, "kind": kind, "name": role}
        body = {"metadata": metadata, "roleRef": reference, "subjects": subjects}
        return {"apiVersion": f"{rbac}/v1", "kind": f"{kind}Binding", **body}

    account = {"name": ACCOUNT, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": inside, "rules": rules},
        binding("Role", inside, name),
        binding("ClusterRole", {"name": name}, "system:kube-scheduler"),
        binding("ClusterRole", {"name": f"{name}-volumes"}, "system:volume-scheduler"),
    ]
