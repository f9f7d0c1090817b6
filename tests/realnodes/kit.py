"""A cluster with real nodes and the kit that started it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 240


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

    def load(self, image: Path) -> None:
        """Put an image onto every node."""
        self._run("load", str(self.folder), str(image))

    def kill(self, process: str, down_seconds: int = 0) -> None:
        """End a process of the cluster with SIGKILL and start it again."""
        self._run(
            "restart",
            str(self.folder),
            process,
            KUBE_SIGNAL="KILL",
            DOWN=str(down_seconds),
        )

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
