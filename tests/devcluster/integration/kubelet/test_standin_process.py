"""The node process: killed, started before the API server, and without it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devcluster.kubelet.options import StandInOptions
from devcluster.kubelet.standin import StandInNodes
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import NODES
from tests.devcluster.integration.kubelet.conftest import TRAPPED, Cluster
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANAGE = Path(__file__).resolve().parents[4] / "manage.py"


@contextlib.asynccontextmanager
async def process(cluster: Cluster, kubeconfig: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The management command with nodes of this test's name."""
    name = f"standin-{cluster.suffix}"
    arguments = ["--nodes", "1", "--prefix", f"{name}-", "--label", f"test={cluster.suffix}"]
    arguments += ["--scheduler-name", name, "--no-claims"]
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        str(MANAGE),
        "run_kubelet",
        "--kubeconfig",
        str(kubeconfig),
        *arguments,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "ipuhub.settings"},
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def test_a_killed_process_goes_on_after_its_restart(
    cluster: Cluster, kubeconfig: Path
) -> None:
    await cluster.create_pod("job", sim={"runtime-seconds": "6"})
    await cluster.create_pod("worker", command=TRAPPED)
    async with process(cluster, kubeconfig) as first:
        before = await cluster.until_phase("job", "Running")
        await cluster.until_phase("worker", "Running")
        first.send_signal(signal.SIGKILL)
        await first.wait()
    await cluster.delete_pod("worker")
    await cluster.create_pod("late", sim={"runtime-seconds": "0"})
    async with process(cluster, kubeconfig) as second:
        await cluster.until_phase("late", "Succeeded")
        await cluster.until_gone("worker")
        after = await cluster.until_phase("job", "Succeeded")
        second.terminate()
        assert await asyncio.wait_for(second.wait(), 90) == 0
    [was], [ended] = before["status"]["containerStatuses"], after["status"]["containerStatuses"]
    assert ended["state"]["terminated"]["startedAt"] == was["state"]["running"]["startedAt"]
    assert ended["restartCount"] == 0


@pytest.mark.embedded_only
async def test_the_api_server_may_come_late_and_go_in_the_middle(tmp_path: Path) -> None:
    port = free_port()
    prepared = DevCluster(tmp_path / "cluster", port=port)
    await prepared.start()  # writes the kubeconfig
    await prepared.stop()
    async with KubeClient(load_config(str(prepared.kubeconfig))) as client:
        cluster = Cluster(client)
        options = StandInOptions(nodes=1, prefix=f"standin-{cluster.suffix}-")
        nodes = asyncio.create_task(StandInNodes(client, options).run())

        async def registered() -> int:
            try:
                return len((await client.list(NODES)).items)
            except ApiError:
                return 0

        server = DevCluster(tmp_path / "cluster", port=port)
        await server.start()
        await eventually(registered, lambda found: found == 1)
        own = {"schedulerName": "default-scheduler", "nodeSelector": {}}
        await cluster.create_pod("job", sim={"runtime-seconds": "2"}, **own)
        await cluster.until_phase("job", "Running")
        await server.stop()
        server = DevCluster(tmp_path / "cluster", port=port)
        await server.start()
        pod = await cluster.until_phase("job", "Succeeded")
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        nodes.cancel()
        await asyncio.gather(nodes, return_exceptions=True)
        await server.stop()
