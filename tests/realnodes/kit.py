"""A cluster with real nodes and the kit that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 240
_STARTS = 5


@dataclass(frozen=True)
class RealCluster:
    """Folder of a running cluster and of the kit's commands (`load`, `restart`)."""

    folder: Path
    kit: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl as the administrator and return what it prints."""
        done = self.try_kubectl(*arguments, stdin=stdin)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The same without a check."""
        return subprocess.run(
            ["kubectl", *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def find(self, *arguments: str) -> dict[str, Any] | None:
        """Return one object of `kubectl get`; None where it does not exist."""
        found = self.kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
        return dict(json.loads(found)) if found else None

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return one object, or a list, of `kubectl get`."""
        return dict(json.loads(self.kubectl("get", *arguments, "-o", "json")))

    def create_anew(self, namespace: str, body: dict[str, Any]) -> None:
        """Create an object; one of its name goes first, as a test's try that failed leaves it."""
        text, where = json.dumps(body), ("-n", namespace, "-f", "-")
        self.kubectl("delete", *where, "--ignore-not-found", "--timeout=120s", stdin=text)
        self.kubectl("create", *where, stdin=text)

    def load(self, image: Path) -> None:
        """Put an image onto every node."""
        self._run("load", str(self.folder), str(image))

    def kill(self, process: str, down_seconds: int = 0) -> None:
        """End a process of the cluster with SIGKILL and start it; return once it is up again."""
        self._start(process, KUBE_SIGNAL="KILL", DOWN=str(down_seconds))

    @contextmanager
    def without_node(self, number: int) -> Iterator[None]:
        """Kill all that runs on a node and cut its link, as when its power goes; then start it."""
        link = ("ip", "link", "set", f"ihub-v{number}")
        parts = [f"{part}-{number}" for part in ("containerd", "kube-proxy", "kubelet")]
        subprocess.run([*link, "down"], check=True)
        self._run("down", str(self.folder), *parts, KUBE_SIGNAL="KILL")
        wait_until(lambda: not _kill_all(f"ihub-node-{number}"), "the node's processes gone")
        try:
            yield
        finally:
            subprocess.run([*link, "up"], check=True)
            for part in parts:
                self._start(part)

    def _start(self, process: str, **environment: str) -> None:
        """Start it until it stays: no supervisor restarts a process that ends at once.

        An API server ends when a client calls its port from the same port, as a client of a closed
        port of this machine may; a kubelet ends when containerd does not answer yet.
        """
        for _ in range(_STARTS):
            before = self._renewed(process)
            self._run("restart", str(self.folder), process, **environment)
            up = partial(self._is_up, process, before)
            wait_until(lambda: not self._is_alive(process) or up(), process)  # noqa: B023
            if self._is_alive(process):
                return
            environment = {"DOWN": "1"}
        raise AssertionError(f"{process} ended {_STARTS} times: see {self.folder}/logs")

    def _is_up(self, process: str, renewed: str) -> bool:
        if process.startswith("kubelet-"):
            return self._renewed(process) != renewed
        if process == "kube-apiserver":
            return self.try_kubectl("get", "--raw", "/readyz").returncode == 0
        return True

    def _renewed(self, process: str) -> str:
        """Return the time of the last sign of life of a node's kubelet; of another process:
        empty."""
        if not process.startswith("kubelet-"):
            return ""
        lease = f"node-{process.removeprefix('kubelet-')}"
        path = "jsonpath={.spec.renewTime}"
        return self.kubectl("get", "lease", lease, "-n", "kube-node-lease", "-o", path)

    def _is_alive(self, process: str) -> bool:
        number = (self.folder / "pids" / process).read_text().split()[0]
        try:
            return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
        except FileNotFoundError:
            return False

    def _run(self, command: str, *arguments: str, **environment: str) -> None:
        # No pipes: what `restart` starts keeps them open.
        with (self.folder / "logs" / f"tests-{command}.log").open("ab") as log:
            done = subprocess.run(
                [self.kit / command, *arguments],
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=SECONDS,
                check=False,
            )
        assert done.returncode == 0, f"{command} {arguments} failed: see {log.name}"


def _kill_all(group: str) -> bool:
    """Kill the processes of a control group and those below; whether there were any."""
    found = False
    for file in Path("/sys/fs/cgroup/pids", group).glob("**/cgroup.procs"):
        for number in file.read_text().split():
            found = True
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
    return found
