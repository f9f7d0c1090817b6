"""`manage.py run_prober` against the embedded API: a process with pages, and `--once`."""

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
from django.core.management import CommandError, call_command
from psycopg.rows import dict_row

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import NotFound
from ipuhub.kube.leaderelection import LeadershipLost, LeaseHeld
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from ipuhub.process.process import EVERY_PROCESS, WITH_API, WITH_LEASE
from ipuhub.recording.metrics import RECORDINGS
from ipuhub.recording.store import Fenced
from jobs.ipujob.names import IPUJOBS
from tests.builders.documents import our_crd
from tests.fakes.freeport import free_port
from tests.fakes.promtool import complaints, families
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from devcluster.server import DevCluster

FAULTS = ("usage-annotation", "quantity")
TOKEN = {"Authorization": "Bearer for-the-test"}
USAGE = '{"component":"job","component_name":"train","group":"g","instance_type":"i","user":"ada"}'


async def make_pod(cluster: DevCluster, name: str, usage: str = USAGE) -> None:
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {"primehub.io/usage": usage}},
            "spec": {"containers": [{"name": "main", "image": "train:1"}]},
        }
        await client.create(PODS, body, "default")


def environment(cluster: DevCluster, tables: dict[str, Any], port: int) -> dict[str, str]:
    user = f"{tables['user']}:{tables['password']}"
    url = f"postgresql://{user}@{tables['host']}:{tables['port']}/{tables['dbname']}"
    return os.environ | {
        "DATABASE_URL": url,
        "KUBECONFIG": str(cluster.kubeconfig),
        "IPUHUB_HEALTH_PORT": str(port),
        "IPUHUB_LEADER_ELECTION": "off",
        "IPUHUB_METRICS_TOKEN": "for-the-test",
    }


async def prober(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
    command = [sys.executable, "manage.py", "run_prober", *arguments]
    return await asyncio.create_subprocess_exec(*command, **options)


def names(tables: dict[str, Any]) -> list[tuple[str, str]]:
    with psycopg.connect(**tables, row_factory=dict_row) as connection:
        found = connection.execute("SELECT * FROM usage_podlifetime ORDER BY pod_name").fetchall()
    return [(row["pod_name"], row["user"]) for row in found]


def heartbeats(tables: dict[str, Any]) -> list[str]:
    with psycopg.connect(**tables) as connection:
        found = connection.execute("SELECT name FROM ipuhub_heartbeat WHERE at <= now()").fetchall()
    return [name for (name,) in found]


async def page(port: int, path: str, headers: dict[str, str] = TOKEN) -> str:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
        ):
            return await answer.text()
    except aiohttp.ClientError:
        return ""


async def test_the_process_records_says_how_it_is_and_ends_on_sigterm(
    cluster: DevCluster, tables: dict[str, Any]
) -> None:
    await make_pod(cluster, "early")
    port = free_port()
    process = await prober(env=environment(cluster, tables, port))
    try:
        await eventually(lambda: names(tables) == [("early", "ada")])
        await make_pod(cluster, "late")
        await eventually(lambda: len(names(tables)) == 2)
        # Rows are counted after they are committed.
        counted = r'ipuhub_recording_rows_total{watch="pods"} [2-9]'
        metrics = await eventually(
            lambda: page(port, "/metrics"), lambda text: re.search(counted, text)
        )
        assert heartbeats(tables) == ["prober"]
        kinds = (*EVERY_PROCESS, *WITH_LEASE, *WITH_API, *RECORDINGS)
        assert {metric.name for metric in kinds} <= families(metrics.encode())
        assert complaints(metrics.encode()) == ""
        assert "ipuhub_recording" not in await page(port, "/metrics", {})
        assert await page(port, "/healthz") == "ok"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 90) == 0


async def test_it_tells_faults_by_kind_gaps_and_the_age_of_its_position(
    cluster: DevCluster, tables: dict[str, Any]
) -> None:
    with psycopg.connect(**tables) as connection:
        connection.execute(
            "INSERT INTO ipuhub_watchgap (watch, began_at, ended_at, cause) VALUES "
            "('pods', '2026-10-01 10:00Z', '2026-10-01 11:00Z', 'a test'),"
            "('pods', '2026-10-02 10:00Z', '2026-10-02 11:00Z', 'a test')"
        )
    await make_pod(cluster, "broken", "{no json")
    greedy = USAGE.replace("train", "greedy")
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        container = {"name": "main", "image": "train:1"}
        container |= {"resources": {"limits": {"nvidia.com/gpu": "1e30"}}}
        meta = {"name": "greedy", "annotations": {"primehub.io/usage": greedy}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        await client.create(PODS, {**body, "spec": {"containers": [container]}}, "default")
    port = free_port()
    process = await prober(env=environment(cluster, tables, port))
    try:
        await eventually(lambda: len(names(tables)) == 2)
        counted = {f'faults_total{{code="{code}",watch="pods"}} 1.0' for code in FAULTS}
        page_of = await eventually(  # after the commit
            lambda: page(port, "/metrics"), lambda text: all(line in text for line in counted)
        )
        assert 'ipuhub_recording_gaps{watch="pods"} 2.0' in page_of
        assert 'newest_gap_timestamp_seconds{watch="pods"} 1.7909' in page_of
        age = re.search(r'position_age_seconds\{watch="pods"\} ([0-9.e-]+)', page_of)
        assert age is not None
        assert 0 <= float(age[1]) < 60
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 90) == 0


async def test_once_commits_the_lists_there_are_and_names_the_one_that_is_not(
    cluster: DevCluster, tables: dict[str, Any]
) -> None:
    await make_pod(cluster, "only")
    given = environment(cluster, tables, 0)
    process = await prober("--once", env=given, stderr=asyncio.subprocess.PIPE)
    _, errors = await asyncio.wait_for(process.communicate(), 120)
    assert b"could not find the requested resource" in errors  # no IPUJobs are installed
    assert names(tables) == [("only", "ada")]
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, our_crd())
        await eventually(lambda: _is_served(client))
    process = await prober("--once", env=given)
    assert await asyncio.wait_for(process.wait(), 120) == 0


async def _is_served(client: KubeClient) -> bool:
    try:
        await client.list(IPUJOBS)
    except NotFound:
        return False
    return True


def test_without_credentials_it_says_which_file_is_missing(
    tmp_path: Path, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipuhub.process.logs.configure", lambda *_: None)
    settings.KUBECONFIG = str(tmp_path / "nowhere")
    with pytest.raises(CommandError, match="nowhere does not exist"):
        call_command("run_prober")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            LeaseHeld("a holds the Lease default/ipuhub-prober"),
            "a holds .* stop it before you use --once",
        ),
        (LeadershipLost("lost the Lease"), "lost the Lease. Data listed before that is kept"),
        (Fenced(), "another prober took over a watch"),
    ],
)
def test_once_says_in_words_that_another_prober_works(
    cluster: DevCluster,
    settings: SettingsWrapper,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    message: str,
) -> None:
    async def fails(*_args: Any, **_more: Any) -> None:
        raise raised

    monkeypatch.setattr("ipuhub.process.logs.configure", lambda *_: None)
    monkeypatch.setattr("usage.management.commands.run_prober.list_once", fails)
    settings.KUBECONFIG = str(cluster.kubeconfig)
    with pytest.raises(CommandError, match=message):
        call_command("run_prober", "--once")
