"""A cluster with real nodes, and the product beside it.

IPUHUB_TEST_NODES names the folder of a running cluster, IPUHUB_TEST_NODES_KIT the kit that started
it. Without them nothing here is collected: `make test` needs no cluster. IPUHUB_TEST_AUDIT names
the API server's audit log: with it the rights that all of these tests used are judged, at the end.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.fakes.waiting import wait_until
from tests.realnodes.certmanager import CRDS
from tests.realnodes.image import NAME, build_image
from tests.realnodes.kit import RealCluster
from tests.realnodes.product import Product

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN = os.environ.get("IPUHUB_TEST_NODES", "")
AUDITING = "test_chart_rights_used.py"
collect_ignore_glob = [] if GIVEN else ["test_*.py"]
collect_ignore = [] if os.environ.get("IPUHUB_TEST_AUDIT") else [AUDITING]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Judge last what all have done."""
    items.sort(key=lambda item: item.path.name == AUDITING)


@pytest.fixture(scope="session")
def server() -> RealCluster:
    """The cluster as it is, for tests that only ask its API server."""
    return RealCluster(Path(GIVEN), Path(os.environ["IPUHUB_TEST_NODES_KIT"]))


@pytest.fixture(scope="session")
def cluster(server: RealCluster) -> RealCluster:
    """The cluster, its nodes with our image and the V-IPU controller's label."""
    cluster = server
    cluster.load(build_image())
    cluster.kubectl("label", "nodes", "--all", "--overwrite", "vipu-ctrl=vctl1")
    return cluster


@pytest.fixture(scope="session")
def cert_manager_crds(server: RealCluster) -> Iterator[None]:
    """The kinds of cert-manager, without cert-manager."""
    server.kubectl("apply", "--server-side", "-f", str(CRDS))
    server.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    yield
    server.kubectl("delete", "-f", str(CRDS), "--wait=false")


@pytest.fixture(scope="session")
def product(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product's processes; afterwards none was denied anything."""
    product = Product(cluster.kubeconfig, tmp_path_factory.mktemp("product"))
    product.start()
    yield product
    product.stop()
    # Those of an installation by the chart would ask them, too.
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    cluster.kubectl("delete", kinds, "ipuhub-ipujobs")
    assert [line for line in product.lines if "is forbidden" in line] == []


class Jobs:
    """IPUJobs of one namespace, and how they ended."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=check)

    def submit(self, name: str, **spec: Any) -> None:
        """Create a job whose containers run our image; `container` adds to its only container."""
        import json

        container = {"name": "main", "image": NAME, "imagePullPolicy": "IfNotPresent"}
        container |= spec.pop("container", {})
        template = {"spec": {"containers": [container], **spec.pop("pod", {})}}
        body = {
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUJob",
            "metadata": {"name": name},
            "spec": {"jobInstances": 1, "ipusPerJobInstance": "2", **spec}
            | {"workers": {"template": template}},
        }
        made = self.cluster.try_kubectl(
            "-n", self.namespace, "apply", "-f", "-", stdin=json.dumps(body)
        )
        # Not even a warning, of the server or of our webhooks: nobody did anything wrong.
        assert (made.returncode, made.stderr) == (0, "")

    def status(self, name: str) -> dict[str, Any]:
        found = self.cluster.get("ipujob", name, "-n", self.namespace)
        return dict(found.get("status") or {})

    def pods(self, name: str) -> dict[str, dict[str, Any]]:
        found = self.cluster.get(
            "pods", "-n", self.namespace, "-l", f"graphcore.ai/ipujob-name={name}"
        )
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    def until_phase(self, name: str, pod: str, phase: str) -> None:
        """Return once this pod of the job is in `phase`."""

        def reached() -> bool:
            found = self.pods(name).get(pod)
            return found is not None and found["status"].get("phase") == phase

        wait_until(reached, f"{pod} {phase}")

    def until(self, name: str, *states: str) -> dict[str, Any]:
        """Return the status once the job is in one of these states."""

        def reached() -> dict[str, Any] | None:
            status = self.status(name)
            return status if status.get("launcherStatus") in states else None

        try:
            return dict(wait_until(reached, f"{name} {states}"))
        except AssertionError as error:
            about = self.kubectl("describe", "ipujob", name)
            pods = self.kubectl("get", "pods", "-o", "wide")
            raise AssertionError(f"{error}\n{about[-3000:]}\n{pods}") from None

    def until_reason(self, name: str, reason: str) -> str:
        """Return the message of the condition with this reason, once it is True."""

        def true_message() -> str | None:
            for condition in self.status(name).get("conditions") or ():
                if (condition["status"], condition["reason"]) == ("True", reason):
                    return str(condition["message"])
            return None

        try:
            return str(wait_until(true_message, f"{name}: {reason}"))
        except AssertionError as error:
            about = self.kubectl("describe", "ipujob", name)
            raise AssertionError(f"{error}\n{about[-3000:]}") from None

    def logs(self, pod: str, *arguments: str) -> str:
        return self.kubectl("logs", pod, *arguments)


@pytest.fixture
def jobs(cluster: RealCluster, product: Product) -> Iterator[Jobs]:
    """A namespace of the test's own; nothing of it stays, and every IPU is free again."""
    name = f"real-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    jobs = Jobs(cluster, name)
    wait_until(lambda: cluster.find("serviceaccount", "default", "-n", name), "the default account")
    yield jobs
    jobs.kubectl("delete", "ipujobs", "--all", "--timeout=120s")
    assert cluster.get("pods", "-n", name)["items"] == []
    tracker = cluster.find("configmap", "ipu-partitions-tracker", "-n", "ipuhub-system") or {}
    held = [key for key, entry in (tracker.get("data") or {}).items() if '"active"' in entry]
    assert held == []
    cluster.kubectl("delete", "namespace", name, "--wait=false")
