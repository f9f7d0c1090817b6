"""The chart's first look on a cluster of the kit: installation, the trial job, and restarts.

And, at the limit that each launcher pod has, the init container that opens the gate.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.demo_figures import spread
from tests.fakes.waiting import wait_until
from tests.realnodes.kit import RealCluster
from tests.realnodes.release import (
    BIN,
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
            inits += [_init_container(cluster, number) for number in range(options.copies)]
            cluster.kubectl("delete", "ipujob", "trial", "-n", NAMESPACE)
            alone.append(_restarted(cluster))
    print(
        f"{options.rounds} rounds, load of this machine {load:.1f} to {os.getloadavg()[0]:.1f}; s"
    )
    print(f"  helm install --wait until all pods are Ready  {spread(installed)}")
    print(f"  examples/trial.yaml until Running             {spread(running)}")
    print(f"  init container, {inits[0][0]} CPU, from its creation to its end", end="  ")
    print(f"{spread([each for _, each, _ in inits])}")
    print(f"    from its start to its end                   {spread([each for *_, each in inits])}")
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


def _init_container(cluster: RealCluster, number: int) -> tuple[str, float, float]:
    """Run a copy of the job's launcher, whose workers are ready: the limit of its init container,
    and the seconds from its creation and from its start to its end."""
    name = f"copy-{time.monotonic_ns()}"
    copied = cluster.get("pod", "trial-launcher", "-n", NAMESPACE)
    spec = {key: value for key, value in copied["spec"].items() if key != "nodeName"}
    spec["containers"][0] |= {"command": ["true"], "args": []}
    (launcher,) = spec["initContainers"]
    # Of an instance that the job does not have: nobody else has started its command.
    launcher["env"].append({"name": "IPUHUB_INSTANCE", "value": "9"})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    with _events(cluster) as events:
        cluster.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))
        ended = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("wait", ended, f"pod/{name}", "-n", NAMESPACE, "--timeout=120s")
        made = cluster.get("pod", name, "-n", NAMESPACE)["status"]["initContainerStatuses"][0]
        uid = made["containerID"].partition("://")[2]
        times = wait_until(lambda: _times_of(uid, events), f"the events of {name}, {number}")
    cluster.kubectl("delete", "pod", name, "-n", NAMESPACE)
    limit = launcher["resources"]["limits"]["cpu"]
    created, started, exited = times
    return limit, (exited - created).total_seconds(), (exited - started).total_seconds()


@contextmanager
def _events(cluster: RealCluster) -> Iterator[list[Path]]:
    """Files into which each node's containerd writes what happens to its containers."""
    running, files = [], []
    with tempfile.TemporaryDirectory() as text:
        for socket in sorted(cluster.folder.glob("node-*/run/containerd.sock")):
            file = Path(text) / socket.parts[-3]
            command = [
                str(BIN / "ctr"),
                "--address",
                str(socket),
                "--namespace",
                "k8s.io",
                "events",
            ]
            with file.open("wb") as output:
                running.append(subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL))
            files.append(file)
        try:
            yield files
        finally:
            for process in running:
                process.terminate()
                process.wait(10)


def _times_of(uid: str, files: list[Path]) -> tuple[datetime, datetime, datetime] | None:
    """When a container was created, was started, and ended; None: not all is written yet."""
    found: dict[str, datetime] = {}
    for line in (line for file in files for line in file.read_text("utf-8").splitlines()):
        day, clock, zone, _, _, topic, about = line.split(" ", 6)
        if uid in about:
            moment = datetime.fromisoformat(f"{day}T{clock[:15]}{zone}")
            found.setdefault(topic, moment)
    topics = ("/containers/create", "/tasks/start", "/tasks/exit")
    if not set(topics) <= set(found):
        return None
    created, started, ended = (found[topic] for topic in topics)
    return created, started, ended


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
