"""The proxy as a user of a secure vipu-server: from a folder of files that change while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from ipuhub.kube.errors import ConfigError
from partitions.configured import vipu_access
from partitions.proxy.process import running
from partitions.vipu.accessfiles import ControllerAccess, access_of
from partitions.vipu.certificates import Role
from partitions.vipu.client import AdminClient, Credentials, TlsFiles, VipuClient
from partitions.vipu.errors import Unauthenticated, Unavailable
from partitions.vipu.protos import vipu_users_pb2 as pb
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from tests.fakes.proxylab import JOB, ready
from tests.fakes.waiting import eventually
from tests.integration.vipu.securesite import certificates, tls_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.proxylab import Lab


def give(folder: Path, tls: Path, user_id: str, key: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (folder / name).write_bytes((tls / Role.USER / name).read_bytes())
    (folder / "user-id").write_text(f"{user_id}\n")
    (folder / "access-key").write_text(f"{key}\n")


async def test_the_proxy_works_with_its_user_and_takes_over_a_new_key(
    lab: Lab, tmp_path: Path
) -> None:
    await lab.stop_vipu()
    tls = certificates(tmp_path / "tls")
    options = ServerOptions(
        storage=tmp_path / "secure.json",
        port=lab.vipu_port,
        admin_port=0,
        create_latency_seconds=0.05,
        secure=True,
        tls_dir=tls,
    )
    lab.vipu = VipuServer(options)
    lab.vipu.start()
    admin_address = f"127.0.0.1:{lab.vipu.admin_port}"
    ours = tmp_path / "access" / "127.0.0.1"
    async with AdminClient(admin_address, tls=tls_of(tls, Role.ADMIN)) as admin:
        question = pb.CreateUserRequest(user_id="ipuhub", allocation_ids=["default"])
        made = await admin.ask("CreateUser", question)
        give(ours, tls, "ipuhub", made.access_key)
        async with (
            running(replace(lab.options, access_path=tmp_path / "access")) as proxy,
            lab.operator(proxy) as operator,
        ):
            await eventually(lambda: ready(proxy))
            assert (await operator.ensure(**JOB)).phase == "active"
            made = await admin.ask("RotateKey", pb.RotateKeyRequest(user_id="ipuhub"))
            give(ours, tls, "ipuhub", made.access_key)

            async def released() -> bool:
                gone = await operator.release(JOB["uid"], 0)
                return gone is not None and gone.phase == "released"

            await eventually(released)
            another = JOB | {"uid": "uid-2", "name": "second"}
            assert (await operator.ensure(**another)).phase == "active"


async def test_pods_get_a_key_of_their_own_which_ends_with_the_partition(
    lab: Lab, tmp_path: Path
) -> None:
    await lab.stop_vipu()
    tls, ours = certificates(tmp_path / "tls"), tmp_path / "access" / "default"
    options = ServerOptions(
        storage=tmp_path / "secure.json",
        port=lab.vipu_port,
        admin_port=0,
        create_latency_seconds=0,
        secure=True,
        tls_dir=tls,
    )
    lab.vipu = VipuServer(options)
    lab.vipu.start()
    async with AdminClient(
        f"127.0.0.1:{lab.vipu.admin_port}", tls=tls_of(tls, Role.ADMIN)
    ) as admin:
        question = pb.CreateUserRequest(user_id="ipuhub", allocation_ids=["default"])
        give(ours, tls, "ipuhub", (await admin.ask("CreateUser", question)).access_key)
    for name, theirs in (("pod.crt", "tls.crt"), ("pod.key", "tls.key")):
        (ours / name).write_bytes((tls / Role.USER / theirs).read_bytes())
    uid = JOB["uid"]
    async with (
        running(replace(lab.options, access_path=tmp_path / "access")) as proxy,
        lab.operator(proxy) as operator,
    ):
        await eventually(lambda: ready(proxy))
        made = await operator.ensure(**JOB)
        assert made.lacks_key
        key = await operator.make_key(uid, 0, 0)
        assert key is not None
        assert (await operator.store_key(uid, 0, 0, key.id)).pod_key == key.id
        files = TlsFiles(key.ca.encode(), key.certificate.encode(), key.private_key.encode())
        async with VipuClient(
            f"127.0.0.1:{lab.vipu_port}",
            tls=lambda: files,
            credentials=lambda: Credentials(key.user_id, key.access_key),
        ) as pod:
            assert [one.id for one in await pod.list_partitions()] == [made.id]
            assert (await pod.ipuof_config(made.id)).gcds

            async def released() -> bool:
                gone = await operator.release(uid, 0)
                return gone is not None and gone.phase == "released"

            await eventually(released)
            with pytest.raises(Unauthenticated):
                await pod.partition_status(made.id)


async def test_without_a_certificate_for_pods_no_key_is_made(tmp_path: Path) -> None:
    tls, folder = certificates(tmp_path / "tls"), tmp_path / "access" / "v1"
    give(folder, tls, "ipuhub", "key")
    access = access_of("v1:8090", tmp_path / "access", ControllerAccess())
    assert access.pod_tls is not None
    assert access.pod_tls() is None
    (folder / "pod.crt").write_bytes((tls / Role.USER / "tls.crt").read_bytes())
    with pytest.raises(Unavailable, match="name both or none"):
        access.pod_tls()
    (folder / "pod.key").write_bytes((tls / Role.USER / "tls.key").read_bytes())
    found = access.pod_tls()
    assert found is not None
    assert found.certificate == (tls / Role.USER / "tls.crt").read_bytes()
    for name in ("user-id", "access-key"):
        (folder / name).unlink()
    assert access.pod_tls() is None  # a controller without users has no keys


def test_what_pods_lack_for_a_key_is_logged_once_for_each_controller(tmp_path: Path) -> None:
    tls, folder = certificates(tmp_path / "tls"), tmp_path / "access"
    give(folder / "no-pair", tls, "ipuhub", "key")
    give(folder / "no-user", tls, "ipuhub", "key")
    give(folder / "neither", tls, "ipuhub", "key")
    for name in ("user-id", "access-key"):
        (folder / "no-user" / name).unlink()
        (folder / "neither" / name).unlink()
    (folder / "no-user" / "pod.crt").write_bytes((tls / Role.USER / "tls.crt").read_bytes())
    (folder / "no-user" / "pod.key").write_bytes((tls / Role.USER / "tls.key").read_bytes())
    with capture_logs() as entries:
        for name in ("no-pair", "no-user", "neither"):
            pod_tls = access_of(f"{name}:8090", folder, ControllerAccess()).pod_tls
            assert pod_tls is not None
            assert [pod_tls(), pod_tls()] == [None, None]
    assert [(line["controller"], line["remedy"], line["log_level"]) for line in entries] == [
        ("no-pair:8090", f"add pod.crt and pod.key to {folder / 'no-pair'}", "warning"),
        ("no-user:8090", f"add user-id and access-key to {folder / 'no-user'}", "warning"),
    ]


async def test_each_controller_has_the_folder_of_its_name(tmp_path: Path) -> None:
    tls = certificates(tmp_path / "tls")
    access, usual = tmp_path / "access", ControllerAccess()
    assert access_of("v1:8090", None, usual) is usual
    access.mkdir()
    assert access_of("v1:8090", access, usual) is usual
    for name in ("default", "v1", "v1_8091", "fd00__1"):
        give(access / name, tls, name, "key")

    def user_of(address: str) -> str:
        credentials = access_of(address, access, usual).credentials
        found = credentials() if credentials else None
        return found.user_id if found else ""

    want = {
        "v1:8090": "v1",
        "v1:8091": "v1_8091",
        "v2:8090": "default",
        "[fd00::1]:8090": "fd00__1",
    }
    assert {address: user_of(address) for address in want} == want


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        ("ca.crt", None, "cannot read .*ca.crt: No such file"),
        ("tls.key", None, "name both or none"),
        ("user-id", None, "it has access-key and no user-id: add it"),
        ("access-key", "two\nlines", "access-key is not one line"),
        ("tls.crt", "no certificate", "not a PEM file"),
    ],
)
async def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, name: str, content: str | None, want: str
) -> None:
    folder = tmp_path / "access" / "v1"
    give(folder, certificates(tmp_path / "tls"), "ipuhub", "key")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    access = access_of("v1:8090", tmp_path / "access", ControllerAccess())
    async with VipuClient("v1:8090", tls=access.tls, credentials=access.credentials) as vipu:
        with pytest.raises(Unavailable, match=f"files for V-IPU controller v1:8090 in .*{want}"):
            await vipu.list_partitions()


def test_a_setting_that_is_no_folder_stops_the_start(
    tmp_path: Path, settings: SettingsWrapper
) -> None:
    settings.VIPU_ACCESS_PATH = str(tmp_path / "none")
    with pytest.raises(ConfigError, match="IPUHUB_VIPU_ACCESS_PATH: .* is not a folder; make a"):
        vipu_access()
    settings.VIPU_ACCESS_PATH = str(tmp_path)
    assert vipu_access() == tmp_path
    settings.VIPU_ACCESS_PATH = ""
    assert vipu_access() is None
