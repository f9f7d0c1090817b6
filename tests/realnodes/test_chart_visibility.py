"""IPUs on nodes by the Helm chart: turned on, turned off by an upgrade, and gone with the release.

`make images` builds the images, named by IPUHUB_TEST_IMAGES (default dist/images).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devcluster.demo.cluster import CRD_FILE
from partitions.proxy.nodes.visibility import LABEL_TOTAL, MARK_OWNER, RESOURCE
from tests.fakes.waiting import wait_until
from tests.realnodes.release import load_image, make_restricted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.realnodes.kit import RealCluster


ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "ipuhub-seen"
# What is needed to show IPUs, and no more.
VALUES = (
    "vipuServer.enabled=true",
    "admissionWebhooks.enabled=false",
    "crds.enabled=false",
    "uninstall.enabled=false",
)


def helm(*arguments: str) -> None:
    program = str(Path(os.environ["CLUSTER_BIN"]) / "helm")
    kubeconfig = Path(os.environ["IPUHUB_TEST_NODES"]) / "admin.kubeconfig"
    done = subprocess.run(
        [program, *arguments, "-n", NAMESPACE, "--wait", "--timeout", "120s"],
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def sets(is_shown: str) -> list[str]:
    values = (*VALUES, f"ipuVisibility.enabled={is_shown}")
    return [word for value in values for word in ("--set", value)]


@pytest.fixture
def capacities(server: RealCluster) -> Iterator[Callable[[], list[str]]]:
    """Return a function that counts the IPUs that the nodes show."""
    load_image(server, "ipuhub")
    if server.find("crd", "ipujobs.graphcore.ai") is None:
        server.kubectl("create", "-f", str(CRD_FILE))

    def of_all_nodes() -> list[str]:
        nodes = server.get("nodes")["items"]
        found = [node["status"]["capacity"].get(RESOURCE, "") for node in nodes]
        return sorted(filter(None, found))

    yield of_all_nodes
    server.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")


def test_what_the_chart_shows_it_takes_away(
    server: RealCluster, capacities: Callable[[], list[str]]
) -> None:
    make_restricted(server, NAMESPACE)
    helm("install", "seen", "charts/ipuhub", *sets("true"))
    wait_until(lambda: capacities() == ["32"], "the capacity")

    helm("upgrade", "seen", "charts/ipuhub", *sets("false"))
    assert capacities() == []
    helm("upgrade", "seen", "charts/ipuhub", *sets("true"))
    wait_until(lambda: capacities() == ["32"], "the capacity again")

    helm("uninstall", "seen")
    assert capacities() == []
    for node in server.get("nodes")["items"]:
        assert LABEL_TOTAL not in node["metadata"]["labels"]
        assert MARK_OWNER not in node["metadata"].get("annotations", {})
