"""Helm's install, upgrade, rollback and uninstall of the chart on the embedded API.

Needs helm, no cluster. Nothing runs the chart's Deployments there, nor the Job that guards the
uninstallation: hooks are left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance import servers
from tests.devcluster.conformance.kubectl import Kubectl
from tests.realnodes.release import CHART, Helm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRIAL = ("-f", f"{CHART}/trial-values.yaml")
WEB = ("deployment", "gc-ipu-operator-web")
LEFT = {"secret/gc-ipu-operator-database"}  # kept for the next installation


@pytest.fixture
def embedded() -> Iterator[servers.Server]:
    with servers.start("embedded") as server:
        yield server


@pytest.fixture
def helm(embedded: servers.Server) -> Helm:
    return Helm(embedded, "ipus")


@pytest.fixture
def kubectl(embedded: servers.Server, tmp_path: Path) -> Kubectl:
    return Kubectl(embedded.kubeconfig, tmp_path)


def test_a_release_is_installed_upgraded_and_removed(helm: Helm, kubectl: Kubectl) -> None:
    helm.run("install", "gc", CHART, "--create-namespace", *TRIAL)
    first = helm.run("get", "manifest", "gc").stdout
    assert kubectl.run("diff", "-f", "-", "-n", "ipus", stdin=first) == ""
    assert web(kubectl)["spec"]["replicas"] == 1

    helm.run("upgrade", "gc", CHART, *TRIAL, "--set", "web.replicas=3")
    assert web(kubectl)["spec"]["replicas"] == 3

    helm.run("rollback", "gc", "1")
    assert web(kubectl)["spec"]["replicas"] == 1
    assert kubectl.run("diff", "-f", "-", "-n", "ipus", stdin=first) == ""

    helm.run("uninstall", "gc", "--no-hooks")
    assert released(kubectl) == LEFT
    assert "ipujobs.graphcore.ai" in kubectl.run("get", "crd", "-o", "name")


def test_a_field_that_another_changed_stops_the_upgrade(helm: Helm, kubectl: Kubectl) -> None:
    helm.run("install", "gc", CHART, "--create-namespace", *TRIAL)
    replicas = ("--type=merge", "-p", json.dumps({"spec": {"replicas": 5}}))
    kubectl.run("patch", *WEB, "-n", "ipus", *replicas)

    wanted = ("upgrade", "gc", CHART, *TRIAL, "--set", "web.replicas=4")
    refused = helm.run(*wanted, check=False)
    assert 'conflict with "kubectl-patch" using apps/v1: .spec.replicas' in refused.stderr
    assert web(kubectl)["spec"]["replicas"] == 5

    helm.run(*wanted, "--force-conflicts")
    assert web(kubectl)["spec"]["replicas"] == 4


def web(kubectl: Kubectl) -> dict[str, Any]:
    return dict(json.loads(kubectl.run("get", *WEB, "-n", "ipus", "-o", "json")))


def released(kubectl: Kubectl) -> set[str]:
    """What is there of the release, in its namespace and above all namespaces."""
    kinds = "all,secrets,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets"
    wide = "clusterroles,clusterrolebindings,validatingwebhookconfigurations"
    names = kubectl.run("get", kinds, "-n", "ipus", "-o", "name")
    names += kubectl.run("get", wide, "-o", "name")
    return {name for name in names.split() if "/gc-" in name}
