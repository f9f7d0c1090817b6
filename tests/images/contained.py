"""The product's image run by runc: read-only, as 65532, without any capability."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devcluster.demo.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from devcluster.demo.supervisor import Process

USER = 65532
OUTSIDE = frozenset({"kube-api", "kubelet", "postgres"})
"""What stands in for a cluster and a database; the image has neither."""


@dataclass(frozen=True)
class Image:
    """An image's configuration and its files, unpacked."""

    config: Mapping[str, Any]
    root: Path


def unpack(archive: Path, folder: Path) -> Image:
    """Put the layers of an OCI archive on each other, as a container runtime does."""
    blobs = folder / "blobs/sha256"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")

    def blob(description: Mapping[str, Any]) -> Path:
        return blobs / str(description["digest"]).partition(":")[2]

    (described,) = json.loads((folder / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(described).read_text())
    root = folder / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        with tarfile.open(blob(layer)) as tar:
            tar.extractall(root, filter="fully_trusted")
    config = json.loads(blob(manifest["config"]).read_text())
    shutil.rmtree(folder / "blobs")
    return Image(config["config"], root)


class Containers:
    """Containers of one image; `shared` is mounted at its own path, `/tmp` where one asks."""

    def __init__(self, image: Image, folder: Path, shared: Path) -> None:
        self.image, self.shared = image, shared
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._state = ("runc", "--root", str(folder / "runc"))

    def command(
        self, name: str, arguments: Sequence[str], env: Mapping[str, str], *, tmp: bool
    ) -> list[str]:
        """Return what runs `arguments` in a container of this name."""
        bundle = self._folder / name
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._config(arguments, env, tmp=tmp)))
        self.remove(name)
        return [*self._state, "run", "--bundle", str(bundle), name]

    def remove(self, *names: str) -> None:
        """End containers: one outlives its `runc` where that is killed."""
        for name in names:
            command = [*self._state, "delete", "--force", name]
            subprocess.run(command, capture_output=True, check=False)

    def run(self, name: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = self.command(name, arguments, env, tmp=True)
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def status(self, name: str) -> dict[str, str]:
        """Return the kernel's status of the container's first process."""
        state = subprocess.check_output([*self._state, "state", name])
        rows = Path(f"/proc/{json.loads(state)['pid']}/status").read_text("ascii").splitlines()
        return {key: value.strip() for key, _, value in (row.partition(":") for row in rows)}

    def _config(
        self, arguments: Sequence[str], env: Mapping[str, str], *, tmp: bool
    ) -> dict[str, Any]:
        own = self.image.config
        variables = [*own["Env"], *(f"{name}={value}" for name, value in env.items())]
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _tmpfs("/dev", "mode=755"),
            _tmpfs("/dev/shm", "mode=1777"),
            {
                "destination": str(self.shared),
                "source": str(self.shared),
                "type": "none",
                "options": ["rbind", "rw"],
            },
        ]
        if tmp:
            mounts.insert(1, _tmpfs("/tmp", "mode=1777"))
        return {
            "ociVersion": "1.0.2",
            "root": {"path": str(self.image.root), "readonly": True},
            "process": {
                "user": {"uid": USER, "gid": USER},
                "args": list(arguments),
                "env": variables,
                "cwd": own.get("WorkingDir") or "/",
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
        }


def _tmpfs(path: str, mode: str) -> dict[str, Any]:
    return {
        "destination": path,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", mode],
    }


class ContainedSupervisor(Supervisor):
    """Runs the demo's processes in containers of the image; what is no part of it, outside."""

    def __init__(self, containers: Containers, output: Callable[[str], None]) -> None:
        super().__init__(output=output)
        self._containers = containers

    def start(self, process: Process) -> None:
        if process.name not in OUTSIDE:
            self._hand_over()
            command = self._containers.command(
                process.name,
                in_image(process.command),
                process.env,
                tmp=process.name in {"web", "worker"},
            )
            process = replace(process, command=command, env={})
        super().start(process)

    def _hand_over(self) -> None:
        """Give the image's user the files that are its own; root made them."""
        shared = self._containers.shared
        os.chown(shared, USER, USER)
        for name in ("accounts", "webhooks", "celery"):
            for path in (shared / name, *(shared / name).rglob("*")):
                if path.exists():
                    os.chown(path, USER, USER)


_V_IPU: Final = {
    "partitions.vipu.agent.main": "vipu-agent",
    "partitions.vipu.server.main": "vipu-server",
}


def in_image(command: Sequence[str]) -> list[str]:
    """The same command with the image's own programs."""
    python, first, *rest = command
    assert python == sys.executable
    if first != "-m":
        return ["ipuhub", *rest]
    module, *arguments = rest
    if module in _V_IPU:
        return [_V_IPU[module], *arguments]
    assert module == "celery"
    where = arguments.index("--schedule")  # the image names a file of its own
    return ["celery", *arguments[:where], *arguments[where + 2 :]]
