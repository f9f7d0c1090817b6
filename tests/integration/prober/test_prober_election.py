"""Two probers: one records, the other stands by and takes over without a gap."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import scalar_row

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import LEASES, NAMESPACES, PODS
from tests.fakes.forked import forked
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

    from devcluster.server import DevCluster

USAGE = '{"component":"job","component_name":"train","group":"g","instance_type":"i","user":"ada"}'


async def start(
    cluster: DevCluster,
    tables: dict[str, Any],
    name: str,
    log: Path,
    *arguments: str,
    **more: str,
) -> ForkServerProcess:
    user = f"{tables['user']}:{tables['password']}"
    environment = os.environ | {
        "DATABASE_URL": f"postgresql://{user}@{tables['host']}:{tables['port']}/{tables['dbname']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "IPUHUB_NAMESPACE": "default",
        "IPUHUB_IDENTITY": name,
        "IPUHUB_HEALTH_PORT": str(free_port()),
        "IPUHUB_LEASE_DURATION_SECONDS": "3",
        "IPUHUB_LEASE_RENEW_SECONDS": "2",
        "IPUHUB_LEASE_RETRY_SECONDS": "0.2",
        **more,
    }
    return forked(["manage.py", "run_prober", *arguments], Path.cwd(), environment, log)


async def make_pod(client: KubeClient, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"primehub.io/usage": USAGE}},
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
    }
    await client.create(PODS, body, "default")


def recorded(tables: dict[str, Any]) -> list[str]:
    with psycopg.connect(**tables, row_factory=scalar_row) as connection:
        query = "SELECT pod_name FROM usage_podlifetime ORDER BY pod_name"
        return connection.execute(query).fetchall()


def heartbeats(tables: dict[str, Any]) -> list[str]:
    with psycopg.connect(**tables, row_factory=scalar_row) as connection:
        return connection.execute("SELECT name FROM ipuhub_heartbeat").fetchall()


async def ended(process: ForkServerProcess) -> int | None:
    """Return the exit code; None after 90 s."""
    await asyncio.to_thread(process.join, 90)
    return process.exitcode


async def end(process: ForkServerProcess) -> None:
    process.terminate()
    assert await ended(process) == 0


async def test_the_standby_records_once_the_first_is_killed(
    cluster: DevCluster, tables: dict[str, Any], tmp_path: Path
) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in "ab"}

    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        first = await start(cluster, tables, "a", logs["a"])
        await make_pod(client, "one")
        await eventually(lambda: recorded(tables) == ["one"])
        second = await start(cluster, tables, "b", logs["b"])
        try:
            await eventually(lambda: "standing by" in logs["b"].read_text())
            first.kill()
            await ended(first)
            await make_pod(client, "two")
            await eventually(lambda: recorded(tables) == ["one", "two"])
            lease = await client.get(LEASES, "ipuhub-prober", "default")
            assert lease["spec"]["holderIdentity"] == "b"
        finally:
            first.kill()
            second.terminate()
            assert await ended(second) == 0
        lease = await client.get(LEASES, "ipuhub-prober", "default")
        assert lease["spec"]["holderIdentity"] == ""


async def test_who_waits_for_the_api_server_is_alive(
    cluster: DevCluster, tables: dict[str, Any], tmp_path: Path
) -> None:
    """Without an API server no replica leads. A replica without a heartbeat would be called
    down."""
    await cluster.stop()
    prober = await start(cluster, tables, "a", tmp_path / "a.log")
    try:
        await eventually(lambda: heartbeats(tables) == ["prober"])
        assert recorded(tables) == []
    finally:
        await end(prober)


async def test_one_list_is_refused_while_a_prober_is_at_work_which_goes_on(
    cluster: DevCluster, tables: dict[str, Any], tmp_path: Path
) -> None:
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        prober = await start(cluster, tables, "a", tmp_path / "a.log")
        try:
            await make_pod(client, "one")
            await eventually(lambda: recorded(tables) == ["one"])
            once = await start(cluster, tables, "b", tmp_path / "b.log", "--once")
            assert await ended(once) == 1
            log = (tmp_path / "b.log").read_text()
            assert "a holds the Lease default/ipuhub-prober" in log
            assert "Traceback" not in log
            await make_pod(client, "two")
            await eventually(lambda: recorded(tables) == ["one", "two"])
        finally:
            await end(prober)


async def test_who_is_taken_over_from_stands_for_election_again(
    cluster: DevCluster, tables: dict[str, Any], tmp_path: Path
) -> None:
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        probers = [await start(cluster, tables, "a", tmp_path / "a.log")]
        try:
            await make_pod(client, "one")
            await eventually(lambda: recorded(tables) == ["one"])
            probers.append(await start(cluster, tables, "b", tmp_path / "b.log"))
            await eventually(lambda: "standing by" in (tmp_path / "b.log").read_text())
            with psycopg.connect(**tables) as connection:
                # Somebody who asked for no Lease.
                connection.execute("UPDATE ipuhub_watchcheckpoint SET epoch = epoch + 1")
            await make_pod(client, "two")
            await eventually(lambda: recorded(tables) == ["one", "two"])
        finally:
            for process in probers:
                await end(process)


def open_pods(tables: dict[str, Any]) -> list[str]:
    with psycopg.connect(**tables, row_factory=scalar_row) as connection:
        query = "SELECT pod_name FROM usage_podlifetime WHERE finished_at IS NULL ORDER BY pod_name"
        return connection.execute(query).fetchall()


def holders(tables: dict[str, Any]) -> list[str]:
    with psycopg.connect(**tables, row_factory=scalar_row) as connection:
        query = "SELECT DISTINCT holder FROM ipuhub_watchcheckpoint WHERE holder <> ''"
        return connection.execute(query).fetchall()


async def test_a_prober_of_another_namespace_ends_nothing_of_one_that_records(
    cluster: DevCluster, tables: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / "b.log"
    other = {"IPUHUB_NAMESPACE": "other", "USAGE_NAMESPACES": "other"}
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await client.create(NAMESPACES, {"metadata": {"name": "other"}})
        probers = [await start(cluster, tables, "a", tmp_path / "a.log")]
        try:
            await make_pod(client, "one")
            await eventually(lambda: recorded(tables) == ["one"])
            probers.append(await start(cluster, tables, "b", log, **other))
            problem = "the prober of Lease default/ipuhub-prober records into this database"
            await eventually(lambda: problem in log.read_text())
            once = await start(cluster, tables, "c", tmp_path / "c.log", "--once", **other)
            assert await ended(once) == 1
            await make_pod(client, "two")
            await eventually(lambda: recorded(tables) == ["one", "two"])
            assert open_pods(tables) == ["one", "two"]

            await end(probers.pop(0))  # and three minutes later
            with psycopg.connect(**tables) as connection:
                connection.execute(
                    "UPDATE ipuhub_watchcheckpoint SET position_at = now() - interval '4 minutes'"
                )
            await eventually(lambda: holders(tables) == ["b (Lease other/ipuhub-prober)"])
        finally:
            for process in probers:
                await end(process)
