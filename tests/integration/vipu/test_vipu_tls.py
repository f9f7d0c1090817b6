"""TLS between proxy and vipu-server: from files, which change while both run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devcluster.security.certificates import Authority
from ipuhub.kube.errors import ConfigError
from partitions.configured import vipu_tls
from partitions.vipu.client import VipuClient
from partitions.vipu.errors import Unavailable
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions, parse_options
from partitions.vipu.tlsfiles import ClientTls, TlsFilesError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper


def write(authority: Authority, folder: Path, hosts: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """A certificate of `authority` and its key; for a server with `hosts`."""
    folder.mkdir(exist_ok=True)
    issued = authority.issue("vipu", (), hosts)
    for name, content in (("tls.crt", issued.certificate), ("tls.key", issued.key)):
        fresh = folder / f".{name}"
        fresh.write_bytes(content)
        fresh.replace(folder / name)
    return folder / "tls.crt", folder / "tls.key"


def trust(folder: Path, *authorities: Authority) -> Path:
    path = folder / "trusted.crt"
    fresh = folder / ".trusted.crt"
    fresh.write_bytes(b"".join(one.ca_pem for one in authorities))
    fresh.replace(path)
    return path


@pytest.fixture
def first(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "second")


async def version(port: int, tls: ClientTls | None) -> str:
    async with VipuClient(f"127.0.0.1:{port}", tls=tls, deadline_seconds=5) as client:
        return await client.version()


async def test_only_who_is_trusted_by_both_sides_is_answered(
    tmp_path: Path,
    first: Authority,
    second: Authority,
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    certificate, key = write(first, tmp_path / "server", ("127.0.0.1",))
    ours = write(second, tmp_path / "ours")
    strange = write(first, tmp_path / "strange")
    clients = second.ca_file
    _, port = start_server(tls_certificate=certificate, tls_key=key, client_ca=clients)
    assert await version(port, ClientTls(first.ca_file, *ours))
    for refused in (
        None,
        ClientTls(first.ca_file),
        ClientTls(first.ca_file, *strange),
        ClientTls(second.ca_file, *ours),
    ):
        with pytest.raises(Unavailable):
            await version(port, refused)


async def test_renewed_files_are_used_from_the_next_connection_on(
    tmp_path: Path,
    first: Authority,
    second: Authority,
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    certificate, key = write(first, tmp_path / "server", ("127.0.0.1",))
    _, port = start_server(tls_certificate=certificate, tls_key=key)
    tls = ClientTls(trust(tmp_path, first))
    async with VipuClient(f"127.0.0.1:{port}", tls=tls, deadline_seconds=5) as client:
        assert await client.version()
        write(second, tmp_path / "server", ("127.0.0.1",))
        with pytest.raises(Unavailable):
            await version(port, ClientTls(first.ca_file))
        trust(tmp_path, first, second)
        assert await client.version()
        assert await version(port, ClientTls(second.ca_file))
        trust(tmp_path, first)  # the open connection is not kept beside what is trusted now
        with pytest.raises(Unavailable):
            await client.version()


def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, settings: SettingsWrapper, first: Authority
) -> None:
    settings.VIPU_CA_PATH = str(tmp_path / "none.crt")
    with pytest.raises(ConfigError, match=r"IPUHUB_VIPU_CA_PATH.*none\.crt: No such file"):
        vipu_tls()
    settings.VIPU_CA_PATH, settings.VIPU_KEY_PATH = str(first.ca_file), "tls.key"
    with pytest.raises(ConfigError, match="name both or none"):
        vipu_tls()
    settings.VIPU_CA_PATH = ""
    with pytest.raises(ConfigError, match="need IPUHUB_VIPU_CA_PATH"):
        vipu_tls()
    settings.VIPU_KEY_PATH = ""
    assert vipu_tls() is None
    with pytest.raises(ValueError, match="--tls-certificate and --tls-key"):
        _ = ServerOptions(storage=tmp_path, client_ca=first.ca_file).tls
    server = VipuServer(
        ServerOptions(
            storage=tmp_path / "state.json",
            port=0,
            tls_certificate=tmp_path / "no",
            tls_key=tmp_path / "no",
        )
    )
    with pytest.raises(TlsFilesError, match="cannot read"):
        server.start()


def test_the_environment_says_what_the_command_line_does_not(tmp_path: Path) -> None:
    environ = {
        "IPUHUB_SIMULATED_VIPU_PORT": "9001",
        "IPUHUB_SIMULATED_VIPU_HOST": "0.0.0.0",
        "IPUHUB_SIMULATED_VIPU_STORAGE": str(tmp_path),
        "IPUHUB_SIMULATED_VIPU_PUBLISHED_ATTRIBUTES_ONLY": "on",
        "IPUHUB_SIMULATED_VIPU_LOG_FORMAT": "json",
        "VIPU_SERVER_PORT": "tcp://10.0.0.1:8090",
    }
    options = parse_options(["--port", "9002"], environ)
    assert (options.port, options.host, options.storage) == (9002, "0.0.0.0", tmp_path)
    assert (options.published_attributes_only, options.log_format) == (True, "json")
    environ["IPUHUB_SIMULATED_VIPU_PUBLISHED_ATTRIBUTES_ONLY"] = "off"
    assert parse_options([], environ).published_attributes_only is False


def test_a_wrong_variable_of_the_environment_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("PORT", "70000"), ("MACHINES", "many"), ("LOG_LEVEL", "loud")):
        with pytest.raises(SystemExit) as caught:
            parse_options([], {f"IPUHUB_SIMULATED_VIPU_{name}": text})
        assert caught.value.code == 2
        assert f"IPUHUB_SIMULATED_VIPU_{name}: " in capsys.readouterr().err
