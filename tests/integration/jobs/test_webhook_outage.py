"""Outages of webhooks: a condition of the job informs users, a metric informs administrators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipuhub.kube.config import load_config
from ipuhub.kube.resources import NAMESPACES
from jobs.operator.metrics import OPERATOR
from tests.builders.ipujobs import ipujob
from tests.fakes.serverkube import ServerKube, Verbs
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.jobs.conftest import Cluster

LINE = 'ipuhub_jobs_refused{reason="WebhookUnavailable"} '


def page_of(cluster: Cluster) -> str:
    assert cluster.operator is not None
    cluster.operator.fill_metrics()
    return OPERATOR.render().decode()


async def set_away(cluster: Cluster, *, away: bool) -> None:
    """Return once the server heeds it, which a real server does a second later."""
    labels = {"metadata": {"labels": {"chaos": cluster.namespace}}}
    await cluster.client.patch(NAMESPACES, cluster.namespace, labels)
    with Verbs(load_config(str(cluster.kubeconfig))) as client:
        kube = ServerKube(client, cluster.namespace)
        await asyncio.to_thread(kube.set_webhook_away, away=away)


async def test_a_finalizer_that_cannot_be_added_or_removed_is_said_until_the_webhooks_are_back(
    cluster: Cluster,
) -> None:
    def refused(count: int) -> bool:
        return f"{LINE}{count}.0\n" in page_of(cluster)

    async def is_reported() -> bool:
        job = await cluster.job("sample") or {}
        return "failed calling webhook" in job["status"]["lastMessage"]

    async def gone() -> bool:
        return await cluster.job("sample") is None

    assert refused(0)  # there from the start: an alert on it must not lack its series
    await set_away(cluster, away=True)
    try:
        await cluster.create(ipujob().without_finalizer().build())
        message = await cluster.until_reason("sample", "WebhookUnavailable")
        assert "Cannot write the job's finalizers" in message
        await eventually(lambda: refused(1))  # counted in what the operator watches
        assert cluster.partitions.used == 0
    finally:
        await set_away(cluster, away=False)
    await cluster.until_state("sample", "Running")
    await eventually(lambda: refused(0))
    await set_away(cluster, away=True)
    try:
        await cluster.delete("sample")
        await eventually(is_reported)
        await eventually(lambda: refused(1))  # counted in what the operator watches
        assert cluster.partitions.used == 0
    finally:
        await set_away(cluster, away=False)
    await eventually(gone)
    await eventually(lambda: refused(0))
