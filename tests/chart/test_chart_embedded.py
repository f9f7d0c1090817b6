"""Helm's install, upgrade, rollback and uninstall of the chart on the embedded API.

Needs helm, no cluster. Nothing runs the chart's Deployments there, nor the Job that guards the
uninstallation: hooks are left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.documents import read_documents, read_yaml, write_documents
from tests.devcluster.conformance import servers
from tests.devcluster.conformance.kubectl import Kubectl
from tests.realnodes.release import CHART, HELMS, ROOT, Helm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRIAL = ("-f", f"{CHART}/trial-values.yaml")
WEB = ("deployment", "gc-ipu-operator-web")
CRD = "files/graphcore.ai_ipujobs.yaml"
# Kept for the next installation.
LEFT = {"secret/gc-ipu-operator-database", "secret/gc-ipu-operator-web"}


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


def test_each_helm_lints_and_renders_the_same(embedded: servers.Server) -> None:
    fixed = ("database.enabled=false", "database.url=postgresql://x", "web.existingSecret=web")
    values = (*TRIAL, *(word for value in fixed for word in ("--set", value)))
    rendered: list[list[dict[str, Any]]] = []
    for program in HELMS:
        helm = Helm(embedded, "ipus", program)
        assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART, *TRIAL).stdout
        # A Helm 3 that `go install` builds takes the cluster for 1.20.
        text = helm.run("template", "gc", CHART, "--kube-version=1.37.0", *values).stdout
        rendered.append(read_documents(text))
    assert len([each for each in rendered[0] if each["kind"] == "Deployment"]) == 9
    assert all(each == rendered[0] for each in rendered)


@pytest.mark.parametrize("program", HELMS)
def test_a_release_is_installed_upgraded_and_removed(
    program: str, embedded: servers.Server, kubectl: Kubectl
) -> None:
    helm = Helm(embedded, "ipus", program)
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


@pytest.mark.parametrize("program", HELMS)
def test_an_upgrade_takes_the_crd_along(
    program: str, embedded: servers.Server, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Helm itself never upgrades what a chart has in `crds/`."""
    helm, older = Helm(embedded, "ipus", program), tmp_path / "ipuhub"
    shutil.copytree(ROOT / CHART, older)
    (older / CRD).write_text(write_documents([older_crd()]))

    helm.run("install", "gc", str(older), "--create-namespace", *TRIAL)
    assert "suspend" not in fields(kubectl.json("get", "crd", "ipujobs.graphcore.ai"))
    helm.run("upgrade", "gc", CHART, *TRIAL)
    assert "suspend" in fields(kubectl.json("get", "crd", "ipujobs.graphcore.ai"))


@pytest.mark.parametrize("program", HELMS)
def test_a_release_takes_over_the_crd_that_kubectl_applied(
    program: str, embedded: servers.Server, kubectl: Kubectl
) -> None:
    """The commands of the pages about installation and migration; Helm 4 needs another flag than
    Helm 3."""
    helm = Helm(embedded, "ipus", program)
    kubectl.run("apply", "-f", "-", stdin=older_crd())
    take_over = ["--take-ownership"]
    if helm.run("version", "--template", "{{.Version}}").stdout.startswith("v4"):
        refused = helm.run(
            "install", "gc", CHART, "--create-namespace", *TRIAL, *take_over, check=False
        )
        assert ": .spec.versions" in refused.stderr
        helm.run("uninstall", "gc", "--no-hooks")
        take_over.append("--force-conflicts")
    helm.run("install", "gc", CHART, "--create-namespace", *TRIAL, *take_over)
    assert "suspend" in fields(kubectl.json("get", "crd", "ipujobs.graphcore.ai"))
    for page in ("install", "migrate-from-graphcore"):
        assert " ".join(take_over) in (ROOT / f"docs/admin/{page}.md").read_text("utf-8")


def test_the_notes_run_a_job_with_the_image_of_the_release(helm: Helm) -> None:
    image = ("--set", "image.repository=registry.example/ipuhub")
    helm.run("install", "gc", CHART, "--create-namespace", *TRIAL, *image)
    notes = helm.run("get", "notes", "gc").stdout
    (command,) = (line for line in notes.splitlines() if "examples/trial.yaml" in line)
    sends = " | kubectl apply -f -"
    assert command.endswith(sends)
    made = subprocess.check_output(["sh", "-c", command.removesuffix(sends)], cwd=ROOT, text=True)
    container = read_yaml(made)["spec"]["workers"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/ipuhub:0.1.0"
    assert "database.persistent is off" in notes


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


def older_crd() -> dict[str, Any]:
    """The CRD before `suspend`."""
    definition: dict[str, Any] = read_yaml((ROOT / CHART / CRD).read_text("utf-8"))
    del fields(definition)["suspend"]
    return definition


def fields(definition: dict[str, Any]) -> dict[str, Any]:
    """The schema of `spec` in a CRD."""
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found: dict[str, Any] = schema["properties"]
    return found


def web(kubectl: Kubectl) -> dict[str, Any]:
    return dict(json.loads(kubectl.run("get", *WEB, "-n", "ipus", "-o", "json")))


def released(kubectl: Kubectl) -> set[str]:
    """Return the release's objects, in its namespace and above all namespaces."""
    kinds = "all,secrets,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets"
    wide = "clusterroles,clusterrolebindings,validatingwebhookconfigurations"
    names = kubectl.run("get", kinds, "-n", "ipus", "-o", "name")
    names += kubectl.run("get", wide, "-o", "name")
    return {name for name in names.split() if "/gc-" in name}
