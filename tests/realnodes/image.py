"""Builds the images that the tests' pods run, without any registry.

One is Debian with Open MPI, kubectl and our launcher: a base from mmdebstrap, put together by
buildah. The other is the kit's kube-scheduler and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/test-image"
NAME = "localhost/ipuhub:test"
SCHEDULER_REPOSITORY = "localhost/kube-scheduler"
PACKAGES = "openmpi-bin,python3"
PROGRAM = "/usr/local/bin/ipuhub-launcher"
LAUNCHER = ROOT / "jobs/launcher/main.py"


def build_image(folder: Path = FOLDER) -> Path:
    """Return an OCI archive in `folder`, built unless the same image is there."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is needed for the launcher's image"
    parts = [Path(__file__).read_bytes(), LAUNCHER.read_bytes()]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    archive = folder / f"test-image-{digest}.tar"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"test-base-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:16]}.tar"
    if not base.exists():
        part = base.with_suffix(".part")
        options = ("--quiet", "--variant=minbase", "--format=tar", f"--include={PACKAGES}")
        _run("mmdebstrap", *options, "bookworm", part)
        # Only what is whole gets the name that a later run takes for it.
        part.rename(base)
    programs = ("copy", "--chmod", "755")
    steps = (
        ("add", base, "/"),
        (*programs, kubectl, "/usr/local/bin/kubectl"),
        (*programs, LAUNCHER, PROGRAM),
    )
    _commit(archive, NAME, steps)
    return archive


def build_scheduler_image(folder: Path = FOLDER) -> Path:
    """Return an OCI archive of the kit's kube-scheduler, tagged as its release, built once."""
    program = Path(os.environ["CLUSTER_BIN"]) / "kube-scheduler"
    version = _run(program, "--version").split()[-1]
    with program.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    archive = folder / f"kube-scheduler-{version}-{digest}.tar"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        place = "/usr/local/bin/kube-scheduler"
        steps = (("copy", "--chmod", "755", program.resolve(), place),)
        _commit(archive, f"{SCHEDULER_REPOSITORY}:{version}", steps)
    return archive


def _commit(archive: Path, name: str, steps: Sequence[Sequence[object]]) -> None:
    """Write an image of these files: subcommands of buildah and what follows the container."""
    with tempfile.TemporaryDirectory() as storage:
        buildah = ("buildah", "--root", f"{storage}/root", "--runroot", f"{storage}/run")
        buildah += ("--storage-driver", "vfs")
        container = _run(*buildah, "from", "scratch")
        for *command, source, target in steps:
            _run(*buildah, *command, container, source, target)
        part = archive.with_suffix(".part")
        _run(*buildah, "commit", "--quiet", container, f"oci-archive:{part}:{name}")
        # Only what is whole gets the name that a later run takes for it.
        part.rename(archive)


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


if __name__ == "__main__":
    build_image()
    build_scheduler_image()
