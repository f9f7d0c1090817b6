"""Namespaces chosen by label on the embedded API, followed live."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

from devcluster.server import DevCluster
from ipuhub.backoff import Backoff
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.credentials import ClusterConfig
from ipuhub.kube.errors import ConfigError
from ipuhub.kube.namespaces import ChosenNamespaces
from ipuhub.kube.resources import NAMESPACES, PODS
from ipuhub.kube.watch import Pace
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording
from tests.fakes.podstream import pod_of
from tests.fakes.waiting import eventually
from tests.integration.prober.conftest import QUICK
from usage.pods.recorder import PodRecorder, PodSelection
from usage.prober import build_chosen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper


class Fleet:
    """A cluster, a prober that comes and goes, and its rows."""

    def __init__(self, client: KubeClient, database: dict[str, Any]) -> None:
        self.client, self.database = client, database
        self.tasks: list[asyncio.Task[None]] = []
        self.health = Health()

    async def namespace(self, name: str, **labels: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.client.create(NAMESPACES, body)
        await self.label(name, **labels)

    async def label(self, name: str, **labels: str | None) -> None:
        await self.client.patch(NAMESPACES, name, {"metadata": {"labels": labels}})

    async def run_pod(self, number: int, namespace: str) -> None:
        body = pod_of(number, "RUNNING")
        status = body.pop("status")
        meta = {"name": f"pod-{number}", "annotations": body["metadata"]["annotations"]}
        body |= {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        await self.client.create(PODS, body, namespace)
        await self.status(number, namespace, status)

    async def end_pod(self, number: int, namespace: str) -> None:
        await self.status(number, namespace, pod_of(number, "ENDED")["status"])

    async def status(self, number: int, namespace: str, status: dict[str, Any]) -> None:
        name, body = f"pod-{number}", {"status": status}
        await self.client.patch(PODS, name, body, namespace, subresource="status")

    def start(self, selector: str = "metered=yes") -> None:
        chosen = ChosenNamespaces(self.client, selector, Pace(backoff=Backoff(0.02, 0.2)))
        recorder = PodRecorder(PodSelection(chosen=chosen))
        recording: Recording[Any] = Recording(
            self.client,
            recorder,
            self.database,
            self.health,
            lambda: datetime.now(UTC),
            replace(QUICK, chosen=chosen),
        )
        self.tasks = [asyncio.create_task(chosen.run()), asyncio.create_task(recording.run())]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def query(self, sql: str) -> list[dict[str, Any]]:
        with psycopg.connect(**self.database, row_factory=dict_row) as connection:
            return connection.execute(sql).fetchall()

    def pods(self) -> dict[str, bool]:
        """Return the recorded pods, and whether their ends are."""
        found = self.query("SELECT pod_name, finished_at FROM usage_podlifetime ORDER BY pod_name")
        return {row["pod_name"]: row["finished_at"] is not None for row in found}


@pytest.fixture
async def fleet(tmp_path: Path, tables: dict[str, Any]) -> AsyncIterator[Fleet]:
    cluster = DevCluster(tmp_path / "cluster")
    await cluster.start()
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        fleet = Fleet(client, tables)
        yield fleet
        await fleet.stop()
    await cluster.stop()


async def test_a_namespace_that_gets_the_label_is_recorded_with_what_runs_there(
    fleet: Fleet,
) -> None:
    await fleet.namespace("paid", metered="yes")
    await fleet.namespace("free")
    await fleet.run_pod(1, "paid")
    await fleet.run_pod(2, "free")
    fleet.start()
    await eventually(lambda: fleet.pods() == {"pod-1": False})
    await fleet.label("free", metered="yes")
    await eventually(lambda: fleet.pods() == {"pod-1": False, "pod-2": False})
    await fleet.run_pod(3, "free")
    await fleet.end_pod(2, "free")
    await eventually(lambda: fleet.pods() == {"pod-1": False, "pod-2": True, "pod-3": False})
    assert fleet.query("SELECT * FROM ipuhub_watchgap") == []
    assert fleet.query("SELECT * FROM usage_podlifetime WHERE estimated") == []


async def test_one_that_loses_it_gets_no_new_rows_and_its_old_ones_are_followed(
    fleet: Fleet,
) -> None:
    await fleet.namespace("paid", metered="yes")
    await fleet.namespace("other", metered="yes")
    await fleet.run_pod(1, "paid")
    fleet.start()
    await eventually(lambda: fleet.pods() == {"pod-1": False})
    await fleet.label("paid", metered=None)
    await eventually(lambda: not fleet.health.not_ready())
    await fleet.end_pod(1, "paid")
    await eventually(lambda: fleet.pods() == {"pod-1": True})
    await fleet.run_pod(2, "paid")
    await fleet.run_pod(3, "other")
    await eventually(lambda: "pod-3" in fleet.pods())
    assert fleet.pods() == {"pod-1": True, "pod-3": False}


async def test_one_that_got_it_while_the_prober_was_away_is_listed_at_its_start(
    fleet: Fleet,
) -> None:
    await fleet.namespace("paid", metered="yes")
    await fleet.namespace("late")
    await fleet.run_pod(1, "paid")
    await fleet.run_pod(2, "late")
    fleet.start()
    await eventually(lambda: fleet.pods() == {"pod-1": False})
    await fleet.stop()
    await fleet.label("late", metered="yes")
    fleet.start()
    await eventually(lambda: fleet.pods() == {"pod-1": False, "pod-2": False})
    assert fleet.query("SELECT * FROM ipuhub_watchgap") == []


async def test_both_ways_to_choose_are_refused_with_what_to_do(settings: SettingsWrapper) -> None:
    settings.USAGE_NAMESPACES, settings.USAGE_NAMESPACE_SELECTOR = ["a"], "metered=yes"
    async with KubeClient(ClusterConfig("http://127.0.0.1:1")) as client:
        with pytest.raises(ConfigError, match="unset one of them"):
            build_chosen(client)


async def test_a_selector_that_is_none_is_said_as_not_ready(fleet: Fleet) -> None:
    fleet.start("metered in yes")
    await eventually(lambda: "metered in yes" in " ".join(fleet.health.not_ready()), seconds=20)
    assert fleet.pods() == {}
