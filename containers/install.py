"""Installs the product from wheels into its own folder, bit for bit the same each time.

Runs in the first stage of the Containerfile: `install.py CONTEXT FOLDER`. It needs only Python, not
even a shell.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
UNUSED = (
    "kubernetes/aio",  # 67 MB; ours are kubernetes.client and kubernetes.config
)


def main() -> None:
    context, folder = Path(sys.argv[1]), Path(sys.argv[2])
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    (pip,) = context.glob("wheels/pip-*.whl")
    (product,) = context.glob("wheels/ipuhub-*.whl")
    run(
        *(python, pip / "pip", "install", "--quiet", "--no-compile", "--no-cache-dir"),
        *("--disable-pip-version-check", "--no-index", "--find-links", context / "wheels"),
        *("--constraint", context / "constraints.txt", product),
    )
    (packages,) = folder.glob("lib/python3*/site-packages")
    prune(packages)
    shutil.copy(context / "LICENSE", folder)
    build_settings = {
        "IPUHUB_SECRET_KEY": "used by collectstatic alone",
        "IPUHUB_DEBUG": "on",
        "IPUHUB_STATIC_ROOT": str(folder / "static"),
    }
    run(folder / "bin/ipuhub", "collectstatic", "--noinput", "-v", "0", **build_settings)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)
    # Never checked against the source: that is what a read-only image can promise.
    compileall.compile_dir(
        packages, maxlevels=99, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


def prune(packages: Path) -> None:
    """Remove what no process reads: a third of the size."""
    for name in UNUSED:
        shutil.rmtree(packages / name)
    for path in unused(packages):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def unused(packages: Path) -> Iterator[Path]:
    yield from sorted(packages.rglob("tests"))
    yield from packages.rglob("*.pyi")
    for locale in packages.glob("django/**/locale/*"):
        if locale.is_dir() and not locale.name.startswith("en"):
            yield locale


def run(*command: object, **environment: str) -> None:
    subprocess.run(  # noqa: S603  # our own words
        [str(word) for word in command],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        check=True,
    )


if __name__ == "__main__":
    main()
