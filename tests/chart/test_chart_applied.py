"""The chart without Helm: `helm template | kubectl apply --server-side`, on the embedded API.

test_chart_matrix validates the same manifests against the schemas of a real API server.
"""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from tests.builders.documents import read_documents
from tests.chart.rendering import ROOT, VIPU, template
from tests.devcluster.conformance.servers import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


NO_HOOKS = "--no-hooks"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example.com/main:1"}]}}
JOB = {
    "apiVersion": "graphcore.ai/v1alpha1",
    "kind": "IPUJob",
    "metadata": {"name": "a"},
    "spec": {
        "modelReplicas": "4",
        "ipusPerModelReplica": "1",
        "launcher": {"command": ["mpirun", "true"]},
        "workers": {"replicas": 1, "template": TEMPLATE},
    },
}


CONFIGURATIONS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
CA_BUNDLE = b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


@pytest.fixture
def kubectl() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """The real kubectl on an embedded API of its own."""
    with start("embedded") as server:

        def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["kubectl", *arguments],
                env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
                input=stdin,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )

        yield call


def manifests(*values: str) -> str:
    """The chart as the page about installation has it rendered: hooks would delete jobs."""
    assert f"Render with `{NO_HOOKS}`" in (ROOT / "docs/admin/install.md").read_text("utf-8")
    done = template(*values, "uninstall.drain=true", namespace="default", options=(NO_HOOKS,))
    assert "check_uninstall" not in done.stdout
    documents = read_documents(done.stdout)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


def patch_ca_bundle(kubectl: Callable[..., subprocess.CompletedProcess[str]], kind: str) -> None:
    """Write the CA as the webhook process does: with a patch, by a field manager of its own."""
    found = json.loads(kubectl("get", kind, "gc-ipu-operator", "-o", "json").stdout)
    patch = [
        {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": CA_BUNDLE}
        for number in range(len(found["webhooks"]))
    ]
    options = ("--type=json", "--field-manager=webhook", "-p", json.dumps(patch))
    done = kubectl("patch", kind, "gc-ipu-operator", *options)
    assert done.returncode == 0, done.stderr


def ca_bundles(
    kubectl: Callable[..., subprocess.CompletedProcess[str]], kind: str
) -> set[str | None]:
    found = json.loads(kubectl("get", kind, "gc-ipu-operator", "-o", "json").stdout)
    return {each["clientConfig"].get("caBundle") for each in found["webhooks"]}


def test_the_rendered_chart_is_applied_on_the_server_side_and_again(
    kubectl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    command = ("apply", "--server-side", "-n", "default", "-f", "-")
    for number in range(2):
        done = kubectl(*command, stdin=manifests(VIPU))
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert all(line.endswith(" serverside-applied") for line in lines)
        assert len(lines) > 30
        if number == 0:
            for kind in CONFIGURATIONS:
                patch_ca_bundle(kubectl, kind)
    for kind in CONFIGURATIONS:
        assert ca_bundles(kubectl, kind) == {CA_BUNDLE}
    found = kubectl("get", "deployment", "gc-ipu-operator-vipu-proxy", "-o", "json")
    assert "managedFields" not in found.stdout
    applied = kubectl(
        "get", "deployment", "gc-ipu-operator-vipu-proxy", "-o", "json", "--show-managed-fields"
    )
    (entry,) = json.loads(applied.stdout)["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")


def test_a_job_is_refused_while_no_webhook_of_the_chart_answers(
    kubectl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    command = ("apply", "--server-side", "-n", "default", "-f", "-")
    assert kubectl(*command, stdin=manifests(VIPU)).returncode == 0
    kubectl("create", "namespace", "ml")
    refused = kubectl(*command[:2], "-n", "ml", *command[4:], stdin=json.dumps(JOB))
    assert refused.returncode != 0
    assert 'no endpoints available for service "gc-ipu-operator-webhook-svc"' in refused.stderr
