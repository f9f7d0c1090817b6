"""Warnings of admission webhooks are shown before and after a change, on pages and in the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from ipuhub.api.auth import make_token
from ipuhub.kube.resources import Resource
from ipuhub.kube.transport import warnings_of
from jobs.ipujob.names import IPUJOBS
from tests.builders.clients import browser
from tests.builders.roles import grant
from tests.devcluster.conformance.webhookserver import WebhookServer
from tests.integration.dashboard.actionslab import SPEC, ActionsLab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.background import Background

pytestmark = pytest.mark.django_db
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
WARNING = '8 processes exceed "4" slots, <b>really</b>'
MANIFEST = """apiVersion: graphcore.ai/v1alpha1
kind: IPUJob
metadata: {name: new, namespace: team-a}
spec:
  ipusPerJobInstance: 1
  workers: {template: {spec: {containers: [{name: worker, image: x}]}}}
"""


@pytest.fixture
def lab(background: Background, tmp_path: Path, settings: SettingsWrapper) -> Iterator[ActionsLab]:
    """An API server whose webhook warns of every IPUJob."""
    made, hooks = ActionsLab(background, tmp_path, ""), WebhookServer(tmp_path)
    background.run(hooks.start())
    hooks.allows("warn", warnings=(WARNING, "second"))
    made.run("create", CONFIGURATIONS, _configuration(hooks))
    settings.KUBECONFIG = made.kubeconfig
    settings.ACTIONS = True
    settings.ACTIONS_USERS = {"ann": "ann@lab"}
    yield made
    made.close()
    background.run(hooks.stop())


def _configuration(hooks: WebhookServer) -> dict[str, Any]:
    rule = {"apiGroups": [IPUJOBS.group], "apiVersions": ["*"], "resources": [IPUJOBS.plural]}
    webhook = {
        "name": "warn.example.com",
        "clientConfig": hooks.client("warn"),
        "rules": [rule | {"operations": ["CREATE", "UPDATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": CONFIGURATIONS.api_version,
        "kind": CONFIGURATIONS.kind,
        "metadata": {"name": "warn"},
        "webhooks": [webhook],
    }


def test_warnings_are_shown_on_the_check_of_a_new_job_and_after_its_creation(
    lab: ActionsLab,
) -> None:
    user = get_user_model().objects.create_user("ann")
    grant(user, "operator", "team-a")
    ann = browser(user)
    want = "8 processes exceed &quot;4&quot; slots, &lt;b&gt;really&lt;/b&gt;"
    checked = ann.post("/jobs/new/", {"manifest": MANIFEST}).content.decode()
    assert "Nothing was created yet" in checked
    assert "Kubernetes warns" in checked
    assert want in checked
    assert '<li class="text-break">second</li>' in checked
    done = ann.post("/jobs/new/", {"manifest": MANIFEST, "confirm": "yes"}, follow=True)
    assert f"Kubernetes warns: {want}" in done.content.decode()
    job = lab.add()
    for path in (f"/jobs/{job.uid}/do/suspend/", f"/jobs/{job.uid}/do/run-again/"):
        assert want in ann.get(path).content.decode(), path


def test_warnings_are_in_the_answers_of_the_api(lab: ActionsLab) -> None:
    user = get_user_model().objects.create_user("ann")
    grant(user, "operator", "team-a")
    text = make_token(user, "ci", timezone.now(), None, "read write")[1]
    ann = browser(user)
    body = {"apiVersion": IPUJOBS.api_version, "kind": IPUJOBS.kind, "spec": SPEC}
    body |= {"metadata": {"name": "new", "namespace": "team-a"}}
    for path, status in (("/api/v1/jobs?dry_run=true", 200), ("/api/v1/jobs", 201)):
        headers = {"Authorization": f"Bearer {text}"}
        answer = ann.post(path, body, content_type="application/json", headers=headers)
        assert answer.status_code == status, answer.content
        assert answer.json()["warnings"] == [WARNING, "second"]


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ([], []),
        (['299 - "one"'], ["one"]),
        (
            ['299 - "a, \\"b\\" \\\\ c"', '299 kube "two", 299 - "three"'],
            ['a, "b" \\ c', "two", "three"],
        ),
        (["299 - unquoted", "garbage", '199 - "other code"'], []),
    ],
)
def test_warnings_are_read_from_headers(headers: list[str], want: list[str]) -> None:
    assert warnings_of(headers) == want
