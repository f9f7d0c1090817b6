"""The chart without Helm: `helm template | kubectl apply --server-side`, on the embedded API.

test_chart_matrix validates the same manifests against the schemas of a real API server.
"""

from __future__ import annotations

import json
import os
import subprocess
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


def test_the_rendered_chart_is_applied_on_the_server_side_and_again(
    kubectl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    command = ("apply", "--server-side", "-n", "default", "-f", "-")
    for _ in range(2):
        done = kubectl(*command, stdin=manifests(VIPU))
        assert done.returncode == 0, done.stderr
        said = done.stdout.splitlines()
        assert all(line.endswith(" serverside-applied") for line in said)
        assert len(said) > 30
    found = kubectl("get", "deployment", "gc-ipu-operator-vipu-proxy", "-o", "json")
    assert "managedFields" not in found.stdout
    shown = kubectl(
        "get", "deployment", "gc-ipu-operator-vipu-proxy", "-o", "json", "--show-managed-fields"
    )
    (entry,) = json.loads(shown.stdout)["metadata"]["managedFields"]
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
