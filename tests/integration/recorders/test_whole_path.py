"""The records in PostgreSQL of a job with the real operator, proxy and V-IPU, from apply to its
end."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.kubelet.options import StandInOptions
from devcluster.kubelet.standin import StandInNodes
from ipuhub.kube.events import EventRecorder
from ipuhub.process.health import Health
from ipuhub.times import utc_now
from jobs.ipujob.names import IPUJOBS
from jobs.models import JobAttempt, JobRecord, JobTransition
from jobs.operator.operator import Operator, OperatorOptions
from partitions.models import PartitionLifetime
from partitions.proxy.process import running
from tests.builders.ipujobs import ipujob
from tests.fakes.proxylab import LABEL, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from tests.integration.recorders.conftest import Site

pytestmark = [pytest.mark.full_cluster, pytest.mark.embedded_only]


@asynccontextmanager
async def in_background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def product_on(site: Site) -> AsyncIterator[None]:
    """Nodes, proxy and operator."""
    client = site.lab.client
    key, _, value = LABEL.partition("=")
    nodes = StandInNodes(client, StandInOptions(nodes=1, labels={key: value}))
    async with (
        running(site.lab.options) as proxy,
        site.lab.operator(proxy) as partitions,
        in_background(nodes.run()),
    ):
        await eventually(lambda: ready(proxy))
        site.proxy_url = f"http://127.0.0.1:{proxy.port}"
        events = EventRecorder(client, "ipu-operator", utc_now)
        options = OperatorOptions(poll_seconds=0.2)
        async with in_background(Operator(client, partitions, events, Health(), options).run()):
            yield


async def test_a_job_leaves_its_whole_history(site: Site) -> None:
    async with product_on(site), site.probing():
        await site.make(ipujob().workers(2).annotated(**{"sim/runtime-seconds": "1"}).build())
        await eventually(lambda: JobRecord.objects.filter(status="Completed").exists())
        await eventually(lambda: PartitionLifetime.objects.filter(phase="released").exists())
        await site.lab.client.delete(IPUJOBS, "sample", "default")
        await eventually(lambda: JobRecord.objects.filter(deleted_at__isnull=False).exists())
    job = JobRecord.objects.get()
    assert (job.status, job.reason, job.ipus, job.workers) == (
        "Completed",
        "IPUJobSucceeded",
        4,
        2,
    )
    assert job.created_at <= job.started_at <= job.completed_at <= job.deleted_at
    assert not job.estimated
    states = JobTransition.objects.order_by("at", "id").values_list("state", flat=True)
    assert list(states) == ["Pending", "Running", "Completed"]
    attempt = JobAttempt.objects.get()
    assert (attempt.outcome, attempt.exit_code, attempt.ended_at) == (
        "Completed",
        0,
        job.completed_at,
    )
    holding = PartitionLifetime.objects.get()
    assert (holding.job_uid, holding.size, holding.estimated) == (job.uid, 4, False)
    assert holding.reserved_at <= holding.active_at <= holding.released_at
    assert job.partitions[0]["id"] == holding.partition
