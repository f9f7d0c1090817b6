"""The secure V-IPU of the demo: its files, and the commands that use them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from devcluster.demo.securevipu import SecureVipu, SecureVipuError
from devcluster.demo.vipufleet import controllers_of
from partitions.vipu.cli import admin, main
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.main import main as vipu_server
from partitions.vipu.server.options import ServerOptions
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from pathlib import Path

(FIRST,) = controllers_of(2, is_fleet=False)


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    for name in [name for name in os.environ if name.startswith("VIPU_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return {purpose: free_port() for purpose in (FIRST.purpose, FIRST.admin_purpose)}


def test_a_second_start_renews_certificates_and_keeps_the_key(
    tmp_path: Path, ports: dict[str, int]
) -> None:
    secure = SecureVipu(tmp_path)
    folder = secure.access / f"127.0.0.1_{ports[FIRST.purpose]}"
    seen = []
    for _ in range(2):
        secure.prepare([FIRST], ports)
        seen.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    before, after = seen
    proxy, pods = ("ca.crt", "tls.crt", "tls.key"), ("pod.crt", "pod.key")
    assert before.keys() == {*proxy, *pods, "user-id", "access-key"}
    assert {name for name in before if before[name] != after[name]} == {*proxy[1:], *pods}
    assert after["pod.key"] != after["tls.key"]  # no pod holds what the proxy shows


def test_the_printed_configurations_lead_to_the_controller(
    tmp_path: Path, ports: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    secure = SecureVipu(tmp_path)
    secure.prepare([FIRST], ports)
    options = ServerOptions(
        storage=tmp_path / FIRST.storage,
        port=ports[FIRST.purpose],
        admin_port=ports[FIRST.admin_purpose],
        machines=2,
        secure=True,
        tls_dir=secure.tls,
    )
    server = VipuServer(options)
    server.start()
    try:
        for program, command in (("vipu", main.main), ("vipu-admin", admin.main)):
            where = ("--config", str(secure.configuration(program, FIRST)))
            assert command(["list", "allocations", *where]) == 0
            assert "default       | ag0 ag1" in capsys.readouterr().out
    finally:
        server.stop()


def test_a_demo_that_began_without_users_is_told_to_begin_elsewhere(
    tmp_path: Path, ports: dict[str, int]
) -> None:
    assert vipu_server(["--init", "--storage", str(tmp_path / FIRST.storage)]) == 0
    with pytest.raises(SecureVipuError, match=r"exists already\. A demo that began without"):
        SecureVipu(tmp_path).prepare([FIRST], ports)
