"""The chart's first look on a cluster of the kit: installation, the trial job, and restarts.

And, at the limit that each launcher pod has, the init container that opens the gate.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.bench.demo_figures import spread
from tests.realnodes.kit import RealCluster
from tests.realnodes.launcherstart import run_init_container
from tests.realnodes.release import (
    CHART,
    ROOT,
    Helm,
    end_jobs,
    load_images,
    seconds_until_ready,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

NAMESPACE = "ipuhub-trial"
RELEASE = ("-l", "app.kubernetes.io/instance=ipuhub")
TRIAL = ("-f", f"{CHART}/trial-values.yaml", "--wait", "--timeout", "170s")
# As long as its launcher is copied.
LONGER = ("sleep 30", "sleep 900")


def run(options: argparse.Namespace) -> None:
    """Print the seconds of each part, and the load before and after."""
    cluster = RealCluster(options.nodes.absolute(), options.kit.absolute())
    load_images(cluster)
    load = os.getloadavg()[0]
    installed, running, inits, at_once, alone = [], [], [], [], []
    for _ in range(options.rounds):
        with _release(cluster) as seconds:
            installed.append(seconds)
            at_once.append(seconds_until_ready(_own_pods(cluster)))
            running.append(_seconds_until_running(cluster))
            inits += [
                run_init_container(cluster, NAMESPACE, "trial-launcher")
                for _ in range(options.copies)
            ]
            cluster.kubectl("delete", "ipujob", "trial", "-n", NAMESPACE)
            alone.append(_restarted(cluster))
    print(
        f"{options.rounds} rounds, load of this machine {load:.1f} to {os.getloadavg()[0]:.1f}; s"
    )
    print(f"  helm install --wait until all pods are Ready  {spread(installed)}")
    print(f"  examples/trial.yaml until Running             {spread(running)}")
    print(f"  init container, {inits[0].limit} CPU, from its creation to its end", end="  ")
    print(f"{spread([each.from_creation for each in inits])}")
    started = spread([each.from_start for each in inits])
    print(f"    from its start to its end                   {started}")
    for title, rounds in (("all at once", at_once), ("restarted one by one", alone)):
        print(f"  Ready after the start of the pod, {title}, whole seconds:")
        for component in sorted(rounds[0]):
            print(f"    {component:<20} {spread([float(each[component]) for each in rounds])}")


@contextmanager
def _release(cluster: RealCluster) -> Iterator[float]:
    """The release `ipuhub`; the seconds that its installation took."""
    helm = Helm(cluster, NAMESPACE)
    began = time.monotonic()
    helm.run("install", "ipuhub", CHART, "--create-namespace", "--take-ownership", *TRIAL)
    try:
        yield time.monotonic() - began
    finally:
        helm.run("uninstall", "ipuhub", "--no-hooks", check=False)
        end_jobs(cluster)
        cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def _own_pods(cluster: RealCluster) -> list[dict[str, Any]]:
    pods = cluster.get("pods", "-n", NAMESPACE, *RELEASE)["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _seconds_until_running(cluster: RealCluster) -> float:
    text = (ROOT / "examples/trial.yaml").read_text("utf-8").replace(*LONGER)
    began = time.monotonic()
    cluster.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=text)
    reached = "--for=jsonpath={.status.launcherStatus}=Running"
    cluster.kubectl("wait", reached, "ipujob/trial", "-n", NAMESPACE, "--timeout=120s")
    return time.monotonic() - began


def _restarted(cluster: RealCluster) -> dict[str, int]:
    """Restart each Deployment by itself; the seconds until its new pod was Ready."""
    again: dict[str, int] = {}
    for deployment in cluster.get("deployments", "-n", NAMESPACE, *RELEASE)["items"]:
        where = (f"deployment/{deployment['metadata']['name']}", "-n", NAMESPACE)
        cluster.kubectl("rollout", "restart", *where)
        cluster.kubectl("rollout", "status", *where, "--timeout=120s")
        labels = deployment["spec"]["selector"]["matchLabels"]
        pods = _own_pods(cluster)
        again |= seconds_until_ready(
            [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]
        )
    return again
