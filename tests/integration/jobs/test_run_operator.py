"""`manage.py run_operator` that cannot start says why in one sentence."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command must not set up logging for the other tests."""
    monkeypatch.setattr("ipuhub.logs.configure", lambda *_: None)


def test_without_credentials_it_says_which_file_is_missing(
    tmp_path: Path, settings: SettingsWrapper
) -> None:
    settings.KUBECONFIG = str(tmp_path / "nowhere")
    settings.HEALTH_PORT = 0
    with pytest.raises(CommandError, match="nowhere does not exist"):
        call_command("run_operator")


def test_a_taken_health_port_is_named_with_its_setting(
    tmp_path: Path, settings: SettingsWrapper
) -> None:
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
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings.HEALTH_PORT = taken.getsockname()[1]
        with pytest.raises(
            CommandError, match=rf":{settings.HEALTH_PORT} \(set IPUHUB_HEALTH_PORT"
        ):
            call_command("run_operator")
