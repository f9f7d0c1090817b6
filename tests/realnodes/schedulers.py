"""A kube-scheduler of the chart's configuration beside a cluster, with the chart's rights."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.builders.documents import write_documents
from tests.chart.rendering import VIPU, named, render
from tests.fakes.freeport import free_port
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

NAMESPACE = "ipuhub-system"
_RIGHTS = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
_SECONDS = 30


@contextmanager
def account(
    cluster: RealCluster, folder: Path, documents: list[dict[str, Any]], *components: str
) -> Iterator[Path]:
    """Yield a kubeconfig of the account of the first component, with the rights of all."""
    label = "app.kubernetes.io/component"
    chosen = [
        each
        for each in documents
        if each["kind"] in _RIGHTS and each["metadata"].get("labels", {}).get(label) in components
    ]
    name = next(each["metadata"]["name"] for each in chosen if each["kind"] == "ServiceAccount")
    if cluster.find("namespace", NAMESPACE) is None:
        cluster.kubectl("create", "namespace", NAMESPACE)
    text = write_documents(chosen)
    cluster.kubectl("apply", "-f", "-", stdin=text)
    token = cluster.kubectl("create", "token", name, "-n", NAMESPACE).strip()
    found = yaml.safe_load(cluster.kubeconfig.read_text("utf-8"))
    found["users"] = [{"name": found["users"][0]["name"], "user": {"token": token}}]
    made = folder / f"{name}.kubeconfig"
    made.write_text(yaml.safe_dump(found))
    yield made
    cluster.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=text)


@contextmanager
def scheduler(
    cluster: RealCluster, url: str, name: str, folder: Path, **extender: Any
) -> Iterator[Path]:
    """Run a scheduler of that name that asks the proxy at `url`; yields its log.

    `extender`: what is other than the chart has it.
    """
    program = str(Path(os.environ["CLUSTER_BIN"]) / "kube-scheduler")
    values = ("extendedScheduler.enabled=true", f"extendedScheduler.schedulerName={name}")
    documents = render(VIPU, *values, release=name, namespace=NAMESPACE)
    maps = named(documents, "ConfigMap")
    ((_, found),) = (each for each in maps.items() if each[0].endswith("-scheduler"))
    with account(cluster, folder, documents, "scheduler") as kubeconfig:
        configuration = yaml.safe_load(found["data"]["config.yaml"])
        configuration["clientConnection"] = {"kubeconfig": str(kubeconfig)}
        configuration["extenders"][0] |= {"urlPrefix": f"{url}/scheduler", **extender}
        file, log = folder / "scheduler.json", folder / "scheduler.log"
        file.write_text(json.dumps(configuration))
        deployment = named(documents, "Deployment")[found["metadata"]["name"]]
        _, *options = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
        own = [f"--config={file}", f"--secure-port={free_port()}", f"--cert-dir={folder}"]
        with log.open("wb") as output:
            running = subprocess.Popen(
                # The last of two values counts.
                [program, *options, *own, "--bind-address=127.0.0.1", "--v=4"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            entry = "successfully acquired lease"
            wait_until(lambda: entry in log.read_text().lower(), "the Lease")
            yield log
        finally:
            running.terminate()
            running.wait(_SECONDS)
    assert "is forbidden" not in log.read_text()
