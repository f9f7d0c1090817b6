"""The prober as its command builds it: pods, jobs and partitions of one cluster."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from ipuhub.demo.cluster import write_account_kubeconfig
from ipuhub.health import Health
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.leading import Leadership
from ipuhub.models import WatchCheckpoint, WatchGap
from ipuhub.prober import Prober, build_proxy, keep_recording, run_prober
from jobs.models import JobRecord
from partitions.models import CapacityChange, PartitionLifetime
from partitions.proxy.run import running
from tests.builders.ipujobs import ipujob
from tests.fakes.proxylab import JOB, SYSTEM, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from ipuhub.kube.cluster import ClusterConfig
    from tests.integration.recorders.conftest import Site

ACCOUNT = f"{SYSTEM}/ipuhub-prober"


async def config_of(site: Site, settings: SettingsWrapper) -> ClusterConfig:
    settings.NAMESPACE = SYSTEM
    settings.TRACKER_CONFIGMAP = site.lab.tracker
    settings.SERVICE_ACCOUNT = ACCOUNT
    settings.PROXY_TOKEN = ""
    settings.CAPACITY_POLL_SECONDS = 0.1
    path = await write_account_kubeconfig(
        site.lab.client, Path(site.lab.kubeconfig), site.folder, ACCOUNT
    )
    return load_config(str(path))


async def test_it_records_all_kinds_side_by_side(site: Site, settings: SettingsWrapper) -> None:
    config = await config_of(site, settings)
    health = Health()
    async with running(site.lab.options) as proxy, site.lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        settings.PROXY_URL = f"http://127.0.0.1:{proxy.port}"
        async with KubeClient(config) as client, build_proxy(client) as mine:
            task = asyncio.create_task(Prober(client, mine, health).run())
            await site.make(ipujob().build())
            await operator.ensure(**JOB)
            await eventually(JobRecord.objects.exists)
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


async def test_once_commits_one_full_list_of_each_without_a_proxy(
    site: Site, settings: SettingsWrapper
) -> None:
    config = await config_of(site, settings)
    settings.PROXY_URL = "http://127.0.0.1:1"
    await site.make(ipujob().build())
    await run_prober(config, once=True)
    assert JobRecord.objects.get().name == "sample"
    assert WatchCheckpoint.objects.exclude(resource_version="").count() == 3


async def test_without_a_lease_who_was_taken_over_from_says_so_and_tries_again(site: Site) -> None:
    health, terms, told = Health(), 0, asyncio.Event()

    async def record() -> None:
        nonlocal terms
        terms += 1
        if terms == 3:
            told.set()
            await asyncio.Event().wait()

    alone = Leadership(site.lab.client, None)
    task = asyncio.create_task(keep_recording(alone, record, health, pause_seconds=0.0))
    await asyncio.wait_for(told.wait(), 90)
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
