"""`manage.py run_operator`: errors that prevent its start, and its wiring."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from ipuhub.process.leadership import LeaseOverdue
from jobs.management.commands import run_operator
from jobs.operator.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from ipuhub.kube.client import KubeClient
    from jobs.operator.partitions import Partitions


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command must not set up logging for the other tests."""
    monkeypatch.setattr("ipuhub.process.logs.configure", lambda *_: None)


def test_without_credentials_it_says_which_file_is_missing(
    tmp_path: Path, settings: SettingsWrapper
) -> None:
    settings.KUBECONFIG = str(tmp_path / "nowhere")
    settings.HEALTH_PORT = 0
    with pytest.raises(CommandError, match="nowhere does not exist"):
        call_command("run_operator")


@pytest.fixture
def kubeconfig(tmp_path: Path, settings: SettingsWrapper) -> None:
    """Credentials for a server that is not there."""
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    settings.KUBECONFIG = str(tmp_path / "kubeconfig")
    settings.HEALTH_HOST = "127.0.0.1"


@pytest.mark.usefixtures("kubeconfig")
def test_a_taken_health_port_is_named_with_its_setting(settings: SettingsWrapper) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings.HEALTH_PORT = taken.getsockname()[1]
        with pytest.raises(
            CommandError, match=rf":{settings.HEALTH_PORT} \(set IPUHUB_HEALTH_PORT"
        ):
            call_command("run_operator")


@pytest.mark.usefixtures("kubeconfig")
async def test_an_operator_that_does_not_lead_asks_nothing_of_the_proxy(
    settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HEALTH_PORT, settings.LEADER_ELECTION = 0, True
    made: list[Partitions] = []

    class Kept(Operator):
        def __init__(self, client: KubeClient, partitions: Partitions, *more: Any) -> None:
            super().__init__(client, partitions, *more)
            made.append(partitions)

    async def standing_by(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        with pytest.raises(LeaseOverdue):
            await made[-1].release("uid", 0)

    monkeypatch.setattr(run_operator, "Operator", Kept)
    monkeypatch.setattr(run_operator.runtime, "until_stopped", standing_by)
    await run_operator.run_operator()
    assert made


def test_namespaces_and_pull_secrets_come_from_the_settings(settings: SettingsWrapper) -> None:
    settings.JOB_NAMESPACES, settings.LAUNCHER_PULL_SECRETS = ["lab"], ["pull"]
    options = run_operator.operator_options()
    assert options.namespaces == frozenset({"lab"})
    assert options.pods.launcher_pull_secrets == ("pull",)
