"""Builds the image that the tests' pods run: Debian with Open MPI, kubectl and our launcher.

For the tests only: a base from mmdebstrap, put together by buildah, without any registry.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/test-image"
NAME = "localhost/ipuhub:test"
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
    with tempfile.TemporaryDirectory() as storage:
        buildah = ("buildah", "--root", f"{storage}/root", "--runroot", f"{storage}/run")
        buildah += ("--storage-driver", "vfs")
        container = _run(*buildah, "from", "scratch")
        _run(*buildah, "add", container, base, "/")
        _run(*buildah, "copy", "--chmod", "755", container, kubectl, "/usr/local/bin/kubectl")
        _run(*buildah, "copy", "--chmod", "755", container, LAUNCHER, PROGRAM)
        part = archive.with_suffix(".part")
        _run(*buildah, "commit", "--quiet", container, f"oci-archive:{part}:{NAME}")
        part.rename(archive)
    return archive


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


if __name__ == "__main__":
    build_image()
