"""Client certificates, authorities and server names of a kubeconfig."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ConfigError, load_config
from ipuhub.kube.errors import Unauthorized, Unreachable
from ipuhub.kube.resources import PODS
from tests.builders.kubeconfigs import encoded, plug_in, write_kubeconfig

from .conftest import ScriptedApi, bookmark, events, pod, reply
from .pki import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def secure(authority: Authority, tmp_path: Path) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serve(authority.server_context(tmp_path)) as api:
        yield api


def common_name(api: ScriptedApi) -> str | None:
    certificate = api.seen[-1].peer_certificate
    return dict(pair[0] for pair in certificate["subject"])["commonName"] if certificate else None


async def get_one(api: ScriptedApi, kubeconfig: str) -> None:
    api.answers.append(reply(pod("a", "1")))
    async with KubeClient(load_config(kubeconfig)) as client:
        await client.get(PODS, "a", "x")


async def test_a_client_certificate_given_inline_is_shown_and_leaves_no_key_on_disk(
    secure: ScriptedApi, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    signed = authority.sign("inline")
    cluster = {"server": secure.url, "certificate-authority-data": encoded(authority.pem)}
    user = {
        "client-certificate-data": encoded(signed.certificate),
        "client-key-data": encoded(signed.key),
    }
    await get_one(secure, write_kubeconfig(tmp_path / "config", cluster, user))
    assert common_name(secure) == "inline"
    assert list(folder.iterdir()) == []


async def test_a_client_certificate_in_files_is_shown_and_followed_when_replaced(
    secure: ScriptedApi, authority: Authority, tmp_path: Path
) -> None:
    def write(name: str) -> None:
        signed = authority.sign(name)
        (tmp_path / "client.crt").write_bytes(signed.certificate)
        (tmp_path / "client.key").write_bytes(signed.key)

    write("first")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    cluster = {"server": secure.url, "certificate-authority": "ca.crt"}
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    kubeconfig = write_kubeconfig(tmp_path / "config", cluster, user)

    async def close_after(_request: Any) -> Any:
        answer = await reply(pod("a", "1"))(_request)
        answer.force_close()
        return answer

    secure.answers += [close_after, close_after]
    async with KubeClient(load_config(kubeconfig)) as client:
        await client.get(PODS, "a", "x")
        assert common_name(secure) == "first"
        write("second")
        await client.get(PODS, "a", "x")
        assert common_name(secure) == "second"


async def test_a_plug_ins_client_certificate_is_shown(
    secure: ScriptedApi, authority: Authority, tmp_path: Path
) -> None:
    signed = authority.sign("plugged")
    pair = {
        "clientCertificateData": signed.certificate.decode(),
        "clientKeyData": signed.key.decode(),
    }
    cluster = {"server": secure.url, "certificate-authority-data": encoded(authority.pem)}
    user = plug_in(tmp_path, json.dumps(pair))
    await get_one(secure, write_kubeconfig(tmp_path / "config", cluster, user))
    assert common_name(secure) == "plugged"


async def test_a_server_of_an_unknown_authority_is_refused_unless_verification_is_off(
    secure: ScriptedApi, tmp_path: Path
) -> None:
    stranger = encoded(Authority("stranger").pem)
    cluster = {"server": secure.url, "certificate-authority-data": stranger}
    with pytest.raises(Unreachable, match=r"(?i)certificate verify failed"):
        await get_one(secure, write_kubeconfig(tmp_path / "config", cluster, {"token": "secret"}))
    assert secure.seen == []
    secure.answers.clear()
    cluster = {"server": secure.url, "insecure-skip-tls-verify": True}
    await get_one(secure, write_kubeconfig(tmp_path / "config", cluster, {}))
    assert len(secure.seen) == 1


async def test_the_name_in_the_servers_certificate_may_be_given(
    authority: Authority, tmp_path: Path
) -> None:
    async with ScriptedApi().serve(authority.server_context(tmp_path, "api.example")) as api:
        cluster = {"server": api.url, "certificate-authority-data": encoded(authority.pem)}
        with pytest.raises(Unreachable, match="certificate"):
            await get_one(api, write_kubeconfig(tmp_path / "config", cluster, {}))
        api.answers.clear()
        cluster["tls-server-name"] = "api.example"
        await get_one(api, write_kubeconfig(tmp_path / "config", cluster, {}))
        assert len(api.seen) == 1


async def test_a_watch_that_is_given_up_leaves_no_connection_open(
    secure: ScriptedApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": secure.url, "certificate-authority-data": encoded(authority.pem)}
    kubeconfig = write_kubeconfig(tmp_path / "config", cluster, {})
    has_ended = threading.Event()

    async def give_up() -> None:
        async with (
            KubeClient(load_config(kubeconfig)) as client,
            client.stream(PODS, PODS.path("x"), {"watch": "1"}, 20) as chunks,
        ):
            await anext(chunks)

    def run() -> None:
        try:
            asyncio.run(give_up())
        finally:
            has_ended.set()

    async def deaf(_: Any) -> None:  # holds up the server, which takes no leave then
        has_ended.wait(30)

    secure.watches.append(events(bookmark("1"), then=deaf))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await asyncio.to_thread(run)
        gc.collect()
    assert [str(one.message) for one in warned if "unclosed" in str(one.message)] == []


@pytest.mark.parametrize("key", ["certificate-authority-data", "client-certificate-data"])
async def test_certificates_that_are_none_are_explained(tmp_path: Path, key: str) -> None:
    material = {key: encoded(b"no certificate")}
    if key.startswith("client"):
        material["client-key-data"] = encoded(b"no key")
    cluster = {"server": "https://127.0.0.1:9", **material}
    kubeconfig = write_kubeconfig(tmp_path / "config", cluster, material)
    with pytest.raises(ConfigError, match="certificate"):
        load_config(kubeconfig).ssl_context()
    async with KubeClient(load_config(kubeconfig)) as client:
        with pytest.raises(Unauthorized, match="certificate"):
            await client.get(PODS, "a", "x")
