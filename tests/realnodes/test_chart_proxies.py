"""Two proxies of the chart on real nodes: both Ready, one serves, the other takes over."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.waiting import wait_until
from tests.realnodes.release import CHART, Helm, load_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

NAMESPACE = "two-proxies"
PROXY = "two-ipu-operator-vipu-proxy"
VALUES = ("--set", "vipuProxy.replicas=2,vipuServer.enabled=true,nameOverride=ipu-operator")
SELECTOR = "app.kubernetes.io/component=vipu-proxy"


@pytest.fixture(scope="module")
def helm(server: RealCluster) -> Iterator[Helm]:
    """The release `two`; Helm waits until all of it is Ready."""
    load_image(server, "ipuhub")
    helm = Helm(server, NAMESPACE)
    options = ("--create-namespace", "--take-ownership", *VALUES, "--wait", "--timeout", "120s")
    helm.run("install", "two", CHART, *options)
    yield helm
    helm.run("uninstall", "two", "--no-hooks", check=False)
    server.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def ready_pods(cluster: RealCluster) -> list[str]:
    found = cluster.get("pods", "-n", NAMESPACE, "-l", SELECTOR)["items"]
    return [
        pod["metadata"]["name"]
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
        and all(each["ready"] for each in pod["status"].get("containerStatuses") or [{"ready": 0}])
    ]


def serving(cluster: RealCluster) -> list[str]:
    """The pods behind the Service."""
    slices = cluster.get(
        "endpointslices", "-n", NAMESPACE, "-l", f"kubernetes.io/service-name={PROXY}"
    )["items"]
    ends = [end for each in slices for end in each.get("endpoints") or []]
    return [end["targetRef"]["name"] for end in ends if end["conditions"]["ready"]]


def stats(cluster: RealCluster) -> dict[str, Any]:
    """/stats by the Service, through the API server; empty while nobody serves."""
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{PROXY}:http/proxy/stats"
    done = cluster.try_kubectl("get", "--raw", path)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


@pytest.mark.usefixtures("helm")
def test_both_are_ready_and_the_service_has_one(server: RealCluster) -> None:
    assert len(ready_pods(server)) == 2
    (leader,) = wait_until(lambda: serving(server), "a proxy serves")
    assert leader in ready_pods(server)
    assert wait_until(lambda: stats(server), "/stats")


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("grace", ["30", "0"])
def test_another_takes_over_when_the_leader_goes(grace: str, server: RealCluster) -> None:
    wait_until(lambda: len(ready_pods(server)) == 2, "both ready")
    (leader,) = wait_until(lambda: serving(server), "a proxy serves")
    began = time.monotonic()
    server.kubectl(
        "delete", "pod", leader, "-n", NAMESPACE, f"--grace-period={grace}", "--wait=false"
    )
    wait_until(lambda: serving(server) not in ([], [leader]), "another serves")
    assert wait_until(lambda: stats(server), "/stats")
    print(f"another proxy serves after {time.monotonic() - began:.1f} s (grace {grace} s)")


@pytest.mark.usefixtures("helm")
def test_an_upgrade_that_changes_the_pods_ends(server: RealCluster, helm: Helm) -> None:
    change = ("--set", "vipuProxy.settings.IPUHUB_LOG_LEVEL=debug")
    helm.run("upgrade", "two", CHART, *VALUES, *change, "--wait", "--timeout", "120s")
    assert len(wait_until(lambda: serving(server), "a proxy serves")) == 1
    assert wait_until(lambda: stats(server), "/stats")
