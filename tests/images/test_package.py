"""The package for a site, as `make dist` writes it."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from ipuhub import __version__

ROOT = Path(__file__).resolve().parents[2]
NAME = f"ipuhub-v{__version__}"
CRD = "graphcore.ai_ipujobs.yaml"
IMAGES = ("ipuhub", "ipuhub-launcher")
CHECKSUMS = ("ipuhub-chart.cksm", "ipuhub-files.cksm", "ipuhub-images.cksm")


@pytest.fixture(scope="module")
def package(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive, whose own checksum is right."""
    folder, to = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("unpacked")
    where = os.environ | {"OUT": str(archives), "PACKAGES": str(folder)}
    subprocess.run([ROOT / "containers/dist"], env=where, check=True)
    assert checked(folder, f"{NAME}.tar.cksm") == [f"{NAME}.tar: OK"]
    with tarfile.open(folder / f"{NAME}.tar") as tar:
        tar.extractall(to, filter="data")
    return to / NAME


def checked(folder: Path, sums: str) -> list[str]:
    """Return sha256sum's result for each file."""
    command = ["sha256sum", "--check", "--strict", sums]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def test_crd_docs_and_examples_are_those_of_the_checkout(package: Path) -> None:
    source = ROOT / "devcluster/demo/manifests" / CRD
    assert (package / "CRDs" / CRD).read_bytes() == source.read_bytes()
    for name in ("docs/admin/install.md", "examples/trial.yaml", "LICENSE", "CHANGELOG.md"):
        assert (package / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_the_charts_archive_has_each_file_of_the_chart_and_no_other(package: Path) -> None:
    (archive,) = package.glob("ipuhub-*.tgz")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "ipuhub"]
    tracked = subprocess.check_output(command, cwd=ROOT / "charts", text=True).split()
    with tarfile.open(archive) as tar:
        assert sorted(tar.getnames()) == sorted(tracked)
        for name in ("ipuhub/Chart.yaml", "ipuhub/values.schema.json"):
            packed = tar.extractfile(name)
            assert packed is not None
            assert packed.read() == (ROOT / "charts" / name).read_bytes()


def test_each_image_comes_with_its_digest_boms_and_licences(package: Path) -> None:
    found = {path.name for path in (package / "images").iterdir()}
    parts = ("tar", "digest", "cdx.json", "spdx.json", "licenses.txt")
    assert {f"{image}.{part}" for image in IMAGES for part in parts} - found == set()


def test_every_file_has_a_checksum_and_another_byte_is_found(package: Path) -> None:
    lines = [line for sums in CHECKSUMS for line in checked(package, sums)]
    assert [line for line in lines if not line.endswith(": OK")] == []
    files = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert {line.removesuffix(": OK") for line in lines} == files - set(CHECKSUMS)

    (archive,) = package.glob("ipuhub-*.tgz")
    for changed, sums in (
        (archive, "ipuhub-chart.cksm"),
        (package / "CRDs" / CRD, "ipuhub-files.cksm"),
        (package / "images/ipuhub.digest", "ipuhub-images.cksm"),
    ):
        before = changed.read_bytes()
        changed.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        name = changed.relative_to(package)
        assert f"{name}: FAILED" in checked(package, sums)
        changed.write_bytes(before)
