"""Resource types and their paths; importing them loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ipuhub.kube import resources
from ipuhub.kube.resources import Resource

IPUJOBS = Resource("graphcore.ai", "v1alpha1", "ipujobs", "IPUJob")


@pytest.mark.parametrize(
    ("resource", "where", "want_path"),
    [
        (resources.PODS, (), "/api/v1/pods"),
        (resources.PODS, ("x",), "/api/v1/namespaces/x/pods"),
        (resources.PODS, ("x", "y"), "/api/v1/namespaces/x/pods/y"),
        (resources.PODS, ("x", "y", "status"), "/api/v1/namespaces/x/pods/y/status"),
        (resources.NODES, (None, "n"), "/api/v1/nodes/n"),
        (resources.NODES, ("ignored", "n"), "/api/v1/nodes/n"),
        (IPUJOBS, (), "/apis/graphcore.ai/v1alpha1/ipujobs"),
        (IPUJOBS, ("x", "y"), "/apis/graphcore.ai/v1alpha1/namespaces/x/ipujobs/y"),
        (
            resources.CLUSTER_ROLES,
            (None, "system:node/../x"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node%2F..%2Fx",
        ),
    ],
)
def test_paths_are_those_of_the_api(
    resource: Resource, where: tuple[str | None, ...], want_path: str
) -> None:
    assert resource.path(*where) == want_path


def test_one_namespaced_object_needs_its_namespace() -> None:
    with pytest.raises(ValueError, match="Pod y: a namespaced object needs its namespace"):
        resources.PODS.path(None, "y")


def test_api_version_names_the_group_unless_it_is_the_core() -> None:
    assert resources.PODS.api_version == "v1"
    assert IPUJOBS.api_version == "graphcore.ai/v1alpha1"


def test_importing_the_client_does_not_load_the_kubernetes_package_nor_django() -> None:
    modules = "config client watch informer workqueue events access token blocking errors resources"
    imports = "; ".join(f"import ipuhub.kube.{name}" for name in modules.split())
    check = "import sys; print([m for m in ('kubernetes', 'django') if m in sys.modules])"
    command = [sys.executable, "-c", f"{imports}; import ipuhub.process.health; {check}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
