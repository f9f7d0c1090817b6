"""The prober as its command builds it: pods, jobs and partitions of one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from devcluster.demo.cluster import write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub.backoff import Backoff
from ipuhub.composition import cluster_client, proxy_client
from ipuhub.kube.resources import CLUSTER_ROLES, EVENTS, PODS
from ipuhub.models import WatchCheckpoint, WatchGap
from ipuhub.process.health import Health
from ipuhub.process.leadership import Leadership
from jobs.history import events
from jobs.models import JobEvent, JobRecord
from partitions.models import CapacityChange, PartitionLifetime
from partitions.proxy.process import running
from tests.builders.ipujobs import ipujob
from tests.fakes import proxylab
from tests.fakes.proxylab import JOB, SYSTEM, ready
from tests.fakes.waiting import eventually
from usage.models import PodLifetime
from usage.pods.rows import STAMPED
from usage.prober import Prober, keep_recording, list_once

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from ipuhub.kube.resources import Manifest
    from tests.integration.recorders.conftest import Site

ACCOUNT = f"{SYSTEM}/ipuhub-prober"


async def point_to(site: Site, settings: SettingsWrapper) -> None:
    settings.NAMESPACE = SYSTEM
    settings.TRACKER_CONFIGMAP = site.lab.tracker
    settings.SERVICE_ACCOUNT = ACCOUNT
    settings.PROXY_TOKEN = ""
    path = await write_account_kubeconfig(
        site.lab.client, Path(site.lab.kubeconfig), site.folder, ACCOUNT
    )
    settings.KUBECONFIG = str(path)


def pod_of(job: Manifest, name: str) -> Manifest:
    """A pod as the operator makes it for a job."""
    uid = job["metadata"]["uid"]
    usage = {"component": "ipujob", "component_name": "sample", "group": "g", "ipus": 4_000_000}
    owner = {"apiVersion": job["apiVersion"], "kind": "IPUJob", "name": "sample", "uid": uid}
    meta = {
        "name": name,
        "labels": {"graphcore.ai/ipujob-uid": uid},
        "annotations": {"ipuhub.io/usage": json.dumps(usage | {"instance_type": "ipu-4"})},
        "ownerReferences": [owner | {"controller": True}],
    }
    spec = {"containers": [{"name": "main", "image": "train:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def waiting(job: Manifest, name: str) -> None:
    """A row of a pod that was recorded before its job."""
    stamp = dict.fromkeys(STAMPED) | {"role": "worker", "partition": "p-1"}
    stamp |= {"job_uid": job["metadata"]["uid"], "micro_ipus": 4_000_000}
    times = dict.fromkeys(("created_at", "updated_at"), timezone.now())
    PodLifetime.objects.create(uid=name, pod_name=name, namespace="default", stamp=stamp, **times)


def believed() -> set[str]:
    """The pods that have the IPUs of their stamps."""
    rows = PodLifetime.objects.filter(claim="operator", micro_ipus=4_000_000, stamp__isnull=True)
    return set(rows.values_list("pod_name", flat=True))


async def test_it_records_all_kinds_side_by_side(site: Site, settings: SettingsWrapper) -> None:
    await point_to(site, settings)
    health = Health()
    async with running(site.lab.options) as proxy, site.lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        settings.PROXY_URL = f"http://127.0.0.1:{proxy.port}"
        async with cluster_client("ipuhub-prober") as client, proxy_client(client) as mine:
            job = await site.make(ipujob().build())
            await site.lab.client.create(PODS, pod_of(job, "listed"), "default")
            waiting(job, "earlier")
            task = asyncio.create_task(Prober(client, mine, health).run())
            await operator.ensure(**JOB)
            await eventually(JobRecord.objects.exists)
            await site.lab.client.create(PODS, pod_of(job, "late"), "default")
            await eventually(lambda: believed() == {"earlier", "listed", "late"})
            await eventually(lambda: PartitionLifetime.objects.filter(phase="active").exists())
            await eventually(lambda: CapacityChange.objects.filter(free=28).exists())
            await eventually(lambda: not health.not_ready())
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    names = set(WatchCheckpoint.objects.values_list("name", flat=True))
    assert names >= {"ipujobs", "tracker", "capacity"}
    assert len(names) == 4
    assert not WatchGap.objects.exists()


@pytest.fixture
def _judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded API asks its roles about requests, as a real one does."""
    monkeypatch.setattr(proxylab, "DevCluster", partial(DevCluster, authorization="rbac"))
    monkeypatch.setattr(events, "_BACKOFF", Backoff(0.01, 0.02))


@pytest.mark.usefixtures("_judging")
async def test_without_the_right_to_read_events_all_else_is_recorded_and_a_note_says_so(
    site: Site, settings: SettingsWrapper
) -> None:
    await point_to(site, settings)
    settings.PROXY_URL = "http://127.0.0.1:1"
    admin, health = site.lab.client, Health()
    role = await admin.get(CLUSTER_ROLES, "ipuhub-prober")
    without = [rule for rule in role["rules"] if "events" not in rule.get("resources", ())]
    assert len(without) < len(role["rules"])
    await admin.patch(CLUSTER_ROLES, "ipuhub-prober", {"rules": without})
    about = {"kind": "Pod", "name": "sample-worker-0", "namespace": "default"}
    event = {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": about}
    try:
        await admin.create(EVENTS, {"apiVersion": "v1", "kind": "Event"} | event, "default")
        async with cluster_client("ipuhub-prober") as client, proxy_client(client) as mine:
            task = asyncio.create_task(Prober(client, mine, health).run())
            (note,) = await eventually(health.notes)
            assert note.startswith("record job events: ")
            assert "events is forbidden" in note
            job = await site.make(ipujob().build())
            await admin.create(PODS, pod_of(job, "sample-worker-0"), "default")
            await eventually(lambda: believed() == {"sample-worker-0"})
            await eventually(lambda: not health.not_ready())
            assert health.notes() == [note]
            assert not JobEvent.objects.exists()
            await admin.patch(CLUSTER_ROLES, "ipuhub-prober", {"rules": role["rules"]})
            await eventually(JobEvent.objects.exists)
            await eventually(lambda: not health.notes())
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    finally:
        await admin.patch(CLUSTER_ROLES, "ipuhub-prober", {"rules": role["rules"]})


async def test_once_commits_one_full_list_of_each_without_a_proxy(
    site: Site, settings: SettingsWrapper
) -> None:
    await point_to(site, settings)
    settings.PROXY_URL = "http://127.0.0.1:1"
    await site.make(ipujob().build())
    await list_once()
    assert JobRecord.objects.get().name == "sample"
    assert WatchCheckpoint.objects.exclude(resource_version="").count() == 3


async def test_without_a_lease_who_was_taken_over_from_says_so_and_tries_again(site: Site) -> None:
    health, terms, has_refused = Health(), 0, asyncio.Event()

    async def record() -> str:
        nonlocal terms
        terms += 1
        if terms == 3:
            has_refused.set()
            await asyncio.Event().wait()
        return ""

    alone = Leadership(site.lab.client, None)
    task = asyncio.create_task(keep_recording(alone, record, health, pause_seconds=0.0))
    await asyncio.wait_for(has_refused.wait(), 90)
    assert health.not_ready() == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    terms = 0
    task = asyncio.create_task(keep_recording(alone, record, health, pause_seconds=3600.0))
    await eventually(health.not_ready)
    assert health.not_ready() == ["recording: another prober took a watch over"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert terms == 1
