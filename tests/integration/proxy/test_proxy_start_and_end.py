"""Start, refused start and shutdown of the proxy's process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from ipuhub.concurrency import LoopEnded
from ipuhub.process.health import ListenError
from partitions.errors import InvalidControllers
from partitions.proxy.process import running, serve
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.proxylab import Lab


async def test_an_unusable_start_is_refused_with_a_sentence(lab: Lab) -> None:
    with pytest.raises(InvalidControllers, match="not a port"):
        async with running(replace(lab.options, controllers="a:b:c=d")):
            pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with running(replace(lab.options, port=port)):
                pass


def test_the_command_refuses_a_wrong_list_without_a_traceback(
    settings: Any, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    settings.KUBECONFIG = str(kubeconfig)
    with pytest.raises(CommandError, match="kubeconfig"):
        call_command("run_vipu_proxy")
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
    )
    settings.VIPU_CONTROLLERS = "pod001:8090"
    with pytest.raises(CommandError, match="pod001:8090"):
        call_command("run_vipu_proxy")


async def test_sigterm_ends_the_process_in_order(lab: Lab) -> None:
    before = signal.getsignal(signal.SIGTERM)
    serving = asyncio.create_task(serve(lab.options))
    # Earlier, the signal would end the tests.
    await eventually(lambda: signal.getsignal(signal.SIGTERM) != before)
    assert not serving.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 90)


async def test_a_loop_that_dies_ends_the_process_with_its_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("partitions.proxy.sweep.Sweep.run", die)
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(serve(lab.options), 90)


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        ("partitions.proxy.fleet.Fleet.run", "V-IPU controllers"),
        ("partitions.proxy.sweep.Sweep.run", "sweep"),
        ("partitions.proxy.trackerstore.TrackerStore.run", "tracker"),
    ],
)
async def test_a_loop_that_returns_ends_the_process_with_an_error_that_names_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, loop: str, name: str
) -> None:
    async def end(_: object) -> None:
        pass

    monkeypatch.setattr(loop, end)
    with pytest.raises(LoopEnded, match=f"the loop '{name}' ended"):
        await asyncio.wait_for(serve(lab.options), 90)
