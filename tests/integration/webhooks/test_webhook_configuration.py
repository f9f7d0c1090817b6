"""`manage.py make_webhook_configuration`: `kubectl apply` accepts its output."""

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


def printed(cluster: DevCluster, url: str = URL, **more: Any) -> str:
    output = io.StringIO()
    more = {"ca": cluster.kubeconfig.parent / "pki/ca.crt", "match_conditions": False} | more
    call_command("make_webhook_configuration", url=url, stdout=output, **more)
    return output.getvalue()


def printed_for(service: str, *options: str) -> list[dict[str, Any]]:
    output = io.StringIO()
    command = ("make_webhook_configuration", "--service", service, *options)
    call_command(*command, stdout=output)
    return list(yaml.safe_load_all(output.getvalue()))


def test_a_service_is_asked_by_its_path_and_run_webhooks_writes_the_ca() -> None:
    for configuration in printed_for("tools/hooks:8443"):
        for hook in configuration["webhooks"]:
            client = hook["clientConfig"]
            assert "caBundle" not in client
            assert client["service"].pop("path").startswith(("/mutate-", "/validate-"))
            assert client == {"service": {"namespace": "tools", "name": "hooks", "port": 8443}}
    first = printed_for("tools/hooks")[0]["webhooks"][0]
    assert first["clientConfig"]["service"]["port"] == 443
    for wrong in ("hooks", "tools/hooks:port", "a/b/c", "tools/hooks:123456"):
        with pytest.raises(CommandError, match="is not namespace/name"):
            printed_for(wrong)


def test_names_and_namespaces_come_from_the_settings(settings: SettingsWrapper) -> None:
    settings.WEBHOOK_CONFIGURATION = "second"
    settings.WEBHOOK_NAMESPACES = ["lab", "kube-system"]
    settings.WEBHOOK_SKIPPED_NAMESPACES = ["kube-system"]
    is_selected = {"lab": True, "other": False, "kube-system": False}
    for configuration in printed_for("tools/hooks"):
        assert configuration["metadata"]["name"] == "second"
        hook, *_ = configuration["webhooks"]
        selector = selector_of(hook["namespaceSelector"])
        for name, wanted in is_selected.items():
            assert selector.matches({"kubernetes.io/metadata.name": name}) is wanted


def test_jobs_being_deleted_and_exempt_users_are_not_asked_about(
    settings: SettingsWrapper,
) -> None:
    user = "system:serviceaccount:ipuhub-system:ipuhub-operator"
    settings.WEBHOOK_EXEMPT_USERS = [user]
    for configuration in printed_for("tools/hooks"):
        for hook in configuration["webhooks"]:
            deleted, exempt = hook["matchConditions"]
            assert "!has(object.metadata.deletionTimestamp)" in deleted["expression"]
            assert exempt["expression"] == f"!(request.userInfo.username in ['{user}'])"
    hook, *_ = printed_for("tools/hooks", "--no-match-conditions")[0]["webhooks"]
    assert "matchConditions" not in hook


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
        hooks = [
            hook for hook in validating if selector_of(hook["namespaceSelector"]).matches(labels)
        ]
        (path,) = [hook["clientConfig"]["url"].removeprefix(URL) for hook in hooks]
        assert path == (f"{VALIDATE_PATH}/{label}" if label in PROFILES else VALIDATE_PATH)


async def test_creations_and_edits_are_asked_about_and_scaling_is_only_judged(
    cluster: DevCluster,
) -> None:
    resources = {}
    for configuration in yaml.safe_load_all(printed(cluster)):
        for hook in configuration["webhooks"]:
            (rule,) = hook["rules"]
            assert rule["operations"] == ["CREATE", "UPDATE"]
            assert hook["matchPolicy"] == "Equivalent"  # whatever version somebody writes
            assert (
                resources.setdefault(configuration["kind"], rule["resources"]) == rule["resources"]
            )
    assert resources == {
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
