"""The start time of a launcher pod's init container, at the CPU limit that it has in a job."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.fakes.waiting import wait_until
from tests.realnodes.release import BIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster


class InitContainer(NamedTuple):
    """Its CPU limit, and the seconds from its creation and from its start to its end."""

    limit: str
    from_creation: float
    from_start: float


def run_init_container(cluster: RealCluster, namespace: str, launcher: str) -> InitContainer:
    """Run the init container of a copy of this launcher, whose workers are ready."""
    name = f"copy-{time.monotonic_ns()}"
    copied = cluster.get("pod", launcher, "-n", namespace)
    spec = {key: value for key, value in copied["spec"].items() if key != "nodeName"}
    spec["containers"][0] |= {"command": ["true"], "args": []}
    (init,) = spec["initContainers"]
    # Of an instance that the job does not have: nobody else has started its command.
    init["env"].append({"name": "IPUHUB_INSTANCE", "value": "9"})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    with _events(cluster) as events:
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
        ended = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("wait", ended, f"pod/{name}", "-n", namespace, "--timeout=120s")
        made = cluster.get("pod", name, "-n", namespace)["status"]["initContainerStatuses"][0]
        uid = made["containerID"].partition("://")[2]
        times = wait_until(lambda: _times_of(uid, events), f"the events of {name}")
    cluster.kubectl("delete", "pod", name, "-n", namespace)
    created, started, exited = times
    return InitContainer(
        init["resources"]["limits"]["cpu"],
        (exited - created).total_seconds(),
        (exited - started).total_seconds(),
    )


@contextmanager
def _events(cluster: RealCluster) -> Iterator[list[Path]]:
    """Files into which each node's containerd writes what happens to its containers."""
    running, files = [], []
    with tempfile.TemporaryDirectory() as text:
        for socket in sorted(cluster.folder.glob("node-*/run/containerd.sock")):
            file = Path(text) / socket.parts[-3]
            ctr = (str(BIN / "ctr"), "--address", str(socket), "--namespace", "k8s.io", "events")
            with file.open("wb") as output:
                running.append(subprocess.Popen(ctr, stdout=output, stderr=subprocess.DEVNULL))
            files.append(file)
        try:
            yield files
        finally:
            for process in running:
                process.terminate()
                process.wait(10)


def _times_of(uid: str, files: list[Path]) -> tuple[datetime, datetime, datetime] | None:
    """Return the creation, start and end of a container; None: not all is written yet."""
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
