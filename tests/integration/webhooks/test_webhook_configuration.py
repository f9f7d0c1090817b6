"""`manage.py make_webhook_configuration`: what it prints, `kubectl apply` takes."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from devcluster.server import DevCluster
from devcluster.storage.selectors import selector_of
from jobs.ipujob.privileges import LABEL_POD_PROFILE, PROFILES
from jobs.webhooks.configuration import NAME
from jobs.webhooks.server import VALIDATE_PATH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

URL = "https://hooks.example:9443"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[DevCluster]:
    running = DevCluster(tmp_path / "cluster")
    await running.start()
    yield running
    await running.stop()


def printed(cluster: DevCluster, url: str = URL) -> str:
    output = io.StringIO()
    call_command("make_webhook_configuration", url=url, ca=cluster.ca_file, stdout=output)
    return output.getvalue()


async def test_scope_failure_policy_and_timeout_come_from_the_settings(
    cluster: DevCluster, settings: SettingsWrapper
) -> None:
    settings.WEBHOOK_FAILURE_POLICY = "Ignore"
    settings.WEBHOOK_TIMEOUT_SECONDS = 7
    settings.WEBHOOK_SKIPPED_NAMESPACES = ["kube-system", "quiet"]
    for configuration in yaml.safe_load_all(printed(cluster)):
        for hook in configuration["webhooks"]:
            assert hook["clientConfig"]["url"].startswith(f"{URL}/")
            assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 7)
            *_, left_out = hook["namespaceSelector"]["matchExpressions"]
            assert (left_out["key"], left_out["operator"], left_out["values"]) == (
                "kubernetes.io/metadata.name",
                "NotIn",
                ["kube-system", "quiet"],
            )


async def test_each_namespace_is_judged_once_by_the_profile_of_its_label(
    cluster: DevCluster,
) -> None:
    validating = list(yaml.safe_load_all(printed(cluster)))[1]["webhooks"]
    assert len({hook["name"] for hook in validating}) == len(validating)
    for label in (None, "odd", *PROFILES):
        labels = {} if label is None else {LABEL_POD_PROFILE: label}
        asked = [
            hook for hook in validating if selector_of(hook["namespaceSelector"]).matches(labels)
        ]
        (path,) = [hook["clientConfig"]["url"].removeprefix(URL) for hook in asked]
        assert path == (f"{VALIDATE_PATH}/{label}" if label in PROFILES else VALIDATE_PATH)


async def test_creations_and_edits_are_asked_about_and_scaling_is_only_judged(
    cluster: DevCluster,
) -> None:
    asked = {}
    for configuration in yaml.safe_load_all(printed(cluster)):
        for hook in configuration["webhooks"]:
            (rule,) = hook["rules"]
            assert rule["operations"] == ["CREATE", "UPDATE"]
            assert hook["matchPolicy"] == "Equivalent"  # whatever version somebody writes
            assert asked.setdefault(configuration["kind"], rule["resources"]) == rule["resources"]
    assert asked == {
        "MutatingWebhookConfiguration": ["ipujobs"],
        "ValidatingWebhookConfiguration": ["ipujobs", "ipujobs/scale"],
    }


async def test_kubectl_applies_what_it_prints(cluster: DevCluster, tmp_path: Path) -> None:
    def kubectl(*arguments: str, stdin: str = "") -> str:
        command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    await asyncio.to_thread(kubectl, "apply", "-f", "-", stdin=printed(cluster, f"{URL}/"))
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        found = await asyncio.to_thread(kubectl, "get", kind, NAME, "-o", "yaml")
        hook, *_ = yaml.safe_load(found)["webhooks"]
        assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Fail", 10)


@pytest.mark.parametrize(
    "url", ["http://hooks:9443", "hooks:9443", "https://", "https://hooks/path", "https://u@h"]
)
async def test_what_the_api_server_could_not_ask_is_refused(cluster: DevCluster, url: str) -> None:
    with pytest.raises(CommandError, match="not https://host:port"):
        printed(cluster, url)


def test_a_missing_file_and_a_private_key_are_refused(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n")
    for path, words in ((tmp_path / "none", "No such file"), (key, "contains only certificates")):
        with pytest.raises(CommandError, match=words):
            call_command("make_webhook_configuration", url=URL, ca=path)
