"""A job's launcher and workers on this machine: Open MPI's own mpirun, only kubectl stands in.

The pods' files lie where the manifests mount them, in a mount namespace of each, and a pod has
the hostname that it would have.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devcluster.processes.podfiles import field_of, host_name
from devcluster.processes.runtime import can_isolate
from devcluster.processes.spawned import Place, container_command
from jobs.builders.launcher import ACCOUNT_VOLUME, build_config_map, build_launcher
from jobs.builders.pods import KUBECTL_VOLUME, MPI_VOLUME, BuildContext, build_worker
from jobs.ipujob.spec import parse_spec
from tests.builders.ipujobs import key_of
from tests.builders.jobpods import PLACE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.ipujobs import IPUJobBuilder

KUBECTL = """\
#!/bin/sh
# stands in for `kubectl exec`: takes what kubexec.sh may say, and runs it in the worker's place
refuse() { echo "kubectl: $1: $*" >&2; exit 64; }
[ $# = 10 ] || refuse "10 words expected" "$@"
[ "$1 $2 $3 $5 $6" = "exec --namespace team --container main" ] || refuse "wrong pod" "$@"
[ "$7 $8 $9" = "-- /bin/sh -c" ] || refuse "wrong command" "$@"
[ -x "@PODS@/$4/enter" ] || refuse "no such pod" "$@"
echo "$4" >> @PODS@/entered
entry=@PODS@/$4/enter; shift 7
exec "$entry" "$@"
"""


@dataclass
class MpiLab:
    """The pods of one job, as folders below `folder`; `node` is the host of all of them, where
    they use its network."""

    folder: Path
    job: dict[str, Any]
    node: str = ""

    def __post_init__(self) -> None:
        if shutil.which("mpirun") is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "mpirun")
        assert can_isolate(), "these tests need user namespaces"
        self.context = BuildContext(key_of(self.job), self.job, parse_spec(self.job["spec"]))
        self.config = build_config_map(self.context)["data"]
        self.launcher = build_launcher(self.context, PLACE)
        count = self.context.spec.total_workers
        self.workers = [build_worker(self.context, PLACE, number) for number in range(count)]
        for pod in (self.launcher, *self.workers):
            self._make_pod(pod)
        kubectl = self._folder(self.launcher) / KUBECTL_VOLUME / "kubectl"
        kubectl.write_text(KUBECTL.replace("@PODS@", str(self.folder)), encoding="utf-8")
        kubectl.chmod(0o755)

    @property
    def worker_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.workers]

    @property
    def entered(self) -> list[str]:
        """The pods that the stand-in was executed in, once for each call."""
        return (self.folder / "entered").read_text(encoding="utf-8").split()

    def mpirun(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run mpirun in the launcher and wait for its end."""
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=180)
            finally:
                process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                str(self._folder(self.launcher) / "enter"),
                "mpirun",
                "--allow-run-as-root",
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _folder(self, pod: dict[str, Any]) -> Path:
        return self.folder / pod["metadata"]["name"]

    def _make_pod(self, pod: dict[str, Any]) -> None:
        """Write a pod's volumes and the script that runs a command in its place."""
        folder, name = self._folder(pod), pod["metadata"]["name"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for volume in (MPI_VOLUME, KUBECTL_VOLUME, ACCOUNT_VOLUME, "work", "tmp"):
            (folder / volume).mkdir(parents=True)
        for source in sources_of(volumes[MPI_VOLUME]):
            self._write_files(pod, folder / MPI_VOLUME, source)
        main = pod["spec"]["containers"][0]
        mounts = [(str(folder / m["name"]), m["mountPath"]) for m in main["volumeMounts"]]
        mounts.append((str(self._hosts()), "/etc/hosts"))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "work"),
            "TMPDIR": str(folder / "tmp"),
            "HOSTNAME": name,
        } | {variable["name"]: variable["value"] for variable in main["env"]}
        given = [f"{key}={value}" for key, value in environment.items()]
        work = str(folder / "work")
        place = Place(work, work, self.node or host_name(pod))
        line = container_command((), mounts, place, is_isolated=True)
        entry = folder / "enter"
        entry.write_text(
            f'#!/bin/sh\nexec env -i {shlex.join([*given, *line])} "$@"\n', encoding="utf-8"
        )
        entry.chmod(0o755)

    def _write_files(self, pod: dict[str, Any], folder: Path, source: dict[str, Any]) -> None:
        """Write what a volume has of the job's ConfigMap, or of the pod's own fields."""
        for item in source.get("configMap", {}).get("items", ()):
            path = folder / item["path"]
            path.write_text(self.config[item["key"]], encoding="utf-8")
            path.chmod(item["mode"])
        for item in source.get("downwardAPI", {}).get("items", ()):
            text = field_of(pod, item["fieldRef"]["fieldPath"], {})
            (folder / item["path"]).write_text(text, encoding="utf-8")

    def _hosts(self) -> Path:
        """A name service that takes every host of the hostfile for this machine."""
        path = self.folder / "hosts"
        names = [line.split()[0] for line in self.config["hostfile"].splitlines()]
        path.write_text(f"127.0.0.1 localhost {' '.join(names)}\n", encoding="utf-8")
        return path


def sources_of(volume: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a volume: itself, unless it projects others."""
    return volume["projected"]["sources"] if "projected" in volume else [volume]


def lab_of(builder: IPUJobBuilder, folder: Path, *, node: str = "") -> MpiLab:
    """The lab of a job in namespace `team`."""
    job = builder.build()
    job["metadata"]["namespace"] = "team"
    return MpiLab(folder, job, node)
