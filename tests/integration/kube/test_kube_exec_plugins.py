"""Credentials that are rejected, expire, or come from an exec plug-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import Unauthorized
from ipuhub.kube.resources import PODS
from ipuhub.kube.watch import Scope, Watch
from tests.builders.kubeconfigs import plug_in, write_kubeconfig

from .conftest import BRISK, event, events, pod, reply, status

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import ScriptedApi


async def test_refused_credentials_are_renewed_once_and_the_request_sent_again(
    api: ScriptedApi, tmp_path: Path
) -> None:
    user = plug_in(tmp_path, "{'token': f'token-{count}'}")
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    api.answers += [reply(pod("a", "1")), status(401, "Unauthorized"), reply(pod("a", "1"))]
    async with KubeClient(load_config(kubeconfig)) as client:
        await client.get(PODS, "a", "x")
        await client.get(PODS, "a", "x")
    got = [seen.headers["Authorization"] for seen in api.seen]
    assert got == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


async def test_a_watch_that_is_refused_comes_back_with_new_credentials(
    api: ScriptedApi, tmp_path: Path
) -> None:
    user = plug_in(tmp_path, "{'token': f'token-{count}'}")
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    api.watches += [
        status(401, "Unauthorized"),
        events(event("ADDED", pod("a", "101"))),
    ]
    async with KubeClient(load_config(kubeconfig)) as client:
        stream = Watch(client, Scope(PODS), "100", pace=BRISK).events()
        assert (await anext(stream)).resource_version == "101"
        await stream.aclose()
    got = [seen.headers["Authorization"] for seen in api.seen]
    assert got == ["Bearer token-1", "Bearer token-2"]


async def test_a_plug_in_that_hangs_delays_a_request_no_longer_than_a_slow_server(
    api: ScriptedApi, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    waiting = (
        f"__import__('subprocess').run(['sh', '-c', 'until test -e {go_on}; do sleep 0.02; done'])"
    )
    user = plug_in(tmp_path, f"({waiting}, {{'token': 't'}})[1]")
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    async with KubeClient(load_config(kubeconfig), timeout_seconds=0.1) as client:
        try:
            with pytest.raises(Unauthorized, match="exec plug-in is slow"):
                await client.request("GET", "/version")
        finally:
            go_on.touch()


async def test_a_plug_in_runs_once_for_many_requests(api: ScriptedApi, tmp_path: Path) -> None:
    import asyncio

    expires = "'expirationTimestamp': '2999-01-01T00:00:00Z'"
    user = plug_in(tmp_path, f"{{'token': 't', {expires}}}")
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    api.answers += [reply(pod("a", "1"))] * 10
    async with KubeClient(load_config(kubeconfig)) as client:
        await asyncio.gather(*(client.get(PODS, "a", "x") for _ in range(10)))
    assert (tmp_path / "runs").read_text() == "x"


async def test_credentials_that_stay_refused_are_an_error_and_no_loop(
    api: ScriptedApi, tmp_path: Path
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, {"token": "bad"})
    api.answers += [status(401, "Unauthorized")] * 5
    async with KubeClient(load_config(kubeconfig)) as client:
        with pytest.raises(Unauthorized):
            await client.get(PODS, "a", "x")
    assert len(api.seen) == 1


@pytest.mark.parametrize(
    ("spec", "want_sentence"),
    [
        ({"command": "no-such-login", "installHint": "Install no-such-login."}, "Install no-such"),
        ({"command": "false"}, "exec plug-in false failed"),
        ({"command": "true"}, "exec plug-in true failed"),
    ],
)
async def test_a_plug_in_that_fails_says_so_on_each_request_and_may_recover(
    api: ScriptedApi, tmp_path: Path, spec: dict[str, str], want_sentence: str
) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **spec}}
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    async with KubeClient(load_config(kubeconfig)) as client:
        with pytest.raises(Unauthorized, match=want_sentence) as caught:
            await client.get(PODS, "a", "x")
    assert caught.value.retryable
    assert api.seen == []
