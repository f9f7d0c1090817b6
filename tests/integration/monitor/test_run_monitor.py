"""`manage.py run_monitor` against the embedded API: `--once`, and a process with pages."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import psycopg
import pytest

from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import NAMESPACES, PODS
from ipuhub.process.process import EVERY_PROCESS, WITH_API
from tests.fakes.freeport import free_port
from tests.fakes.podstream import uid_of
from tests.fakes.promtool import complaints, families
from tests.fakes.waiting import eventually
from tests.integration.monitor.conftest import ago
from usage.monitor.rounds import MONITOR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.monitor.conftest import Lookout


@pytest.fixture
async def cluster(tmp_path: Path, lookout: Lookout) -> AsyncIterator[DevCluster]:
    """A cluster with one pod; a row of it, and a row of a pod that it never had."""
    cluster = DevCluster(tmp_path / "cluster")
    await cluster.start()
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        system = await client.get(NAMESPACES, "kube-system")
        lookout.remember(0, ago(4_000), system["metadata"]["uid"])
        lookout.remember(1, ago(4_000), system["metadata"]["uid"])
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod-1"},
            "spec": {"containers": [{"name": "main", "image": "train:1"}]},
        }
        pod = await client.create(PODS, body, "default")
        sql = "UPDATE usage_podlifetime SET uid = %s, namespace = 'default' WHERE uid = %s"
        lookout.execute(sql, pod["metadata"]["uid"], uid_of(1))
    yield cluster
    await cluster.stop()


async def start(cluster: DevCluster, tables: dict[str, Any], *arguments: str, port: int = 0) -> Any:
    user = f"{tables['user']}:{tables['password']}"
    environment = os.environ | {
        "DATABASE_URL": f"postgresql://{user}@{tables['host']}:{tables['port']}/{tables['dbname']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "IPUHUB_HEALTH_PORT": str(port),
        "IPUHUB_METRICS_TOKEN": "for-the-test",
        "MONITOR_ROUND_SECONDS": "1",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "manage.py",
        "run_monitor",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_once_says_what_it_did_and_fails_where_it_cannot_judge(
    cluster: DevCluster, lookout: Lookout
) -> None:
    process = await start(cluster, lookout.database, "--once")
    output, errors = await asyncio.wait_for(process.communicate(), 120)
    assert b"2 checked, 1 there, 1 ended, 0 left" in output, errors
    assert process.returncode == 0
    assert lookout.row(0)["end_source"] == "monitor"
    await cluster.stop()
    process = await start(cluster, lookout.database, "--once")
    _, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 1
    assert b"the round is incomplete" in errors
    assert b"Traceback" not in errors
    await cluster.start()


async def test_the_process_has_pages_and_ends_on_sigterm(
    cluster: DevCluster, lookout: Lookout
) -> None:
    port = free_port()
    process = await start(cluster, lookout.database, port=port)
    headers = {"Authorization": "Bearer for-the-test"}

    async def page(path: str) -> str:
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(f"http://127.0.0.1:{port}{path}") as answer,
            ):
                return await answer.text()
        except aiohttp.ClientError:
            return ""

    try:
        await eventually(lambda: lookout.row(0)["end_source"] == "monitor")
        # Counted, and ready, once the round is over, which is after its rows are written.
        metrics = await eventually(
            lambda: page("/metrics"), lambda text: re.search(r"ipuhub_monitor_closed_total 1", text)
        )
        tables = (*EVERY_PROCESS, *WITH_API, *MONITOR)
        assert {metric.name for metric in tables} <= families(metrics.encode())
        assert complaints(metrics.encode()) == ""
        assert await page("/healthz") == "ok"
        await eventually(lambda: page("/readyz"), lambda text: text == "ok")
        with psycopg.connect(**lookout.database) as connection:
            found = connection.execute("SELECT name FROM ipuhub_heartbeat WHERE at <= now()")
            assert found.fetchall() == [("monitor",)]
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 90) == 0
