"""A continuous stream of reviews of IPUJobs, to notice an unanswered review."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError
from jobs.ipujob.names import IPUJOBS
from tests.devcluster.conformance.servers import LoopThread
from tests.fakes.waiting import wait_until
from tests.realnodes.release import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

_ASKERS = 2
_PAUSE_SECONDS = 0.02  # the pods that come and go meanwhile need the CPU, too
_TIMEOUT_SECONDS = 60


def wrong_job(namespace: str) -> dict[str, Any]:
    """A job that the CRD's schema lets pass and the webhooks refuse, for its modelReplicas."""
    job = dict(yaml.safe_load((ROOT / "examples/trial.yaml").read_text(encoding="utf-8")))
    job["metadata"] = {"name": "wrong", "namespace": namespace}
    job["spec"]["modelReplicas"] = "none"
    return job


class Reviews:
    """The number of wrong jobs that the webhooks refused, and the API server's answers about all
    others."""

    def __init__(self) -> None:
        self.judged = 0
        self.lost: list[str] = []

    def until_more(self, number: int = 20) -> None:
        """Return after so many more; a lost review ends it, too."""
        wanted = self.judged + number
        wait_until(lambda: self.judged >= wanted or self.lost, f"{number} more reviews")

    async def ask(self, cluster: RealCluster, namespace: str, stopped: asyncio.Event) -> None:
        job = wrong_job(namespace)
        async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
            while not stopped.is_set():
                try:
                    await client.try_create(IPUJOBS, job)
                except ApiError as error:
                    self._count(error.message)
                else:
                    self._count("the job was taken")
                await asyncio.sleep(_PAUSE_SECONDS)

    def _count(self, line: str) -> None:
        if "modelReplicas" in line:
            self.judged += 1
        else:
            self.lost.append(line)


@contextmanager
def reviewing(cluster: RealCluster, namespace: str) -> Iterator[Reviews]:
    """Have wrong jobs reviewed meanwhile; at the end each review had an answer of the webhooks."""
    reviews, thread, stopped = Reviews(), LoopThread(), asyncio.Event()

    async def ask() -> None:
        await asyncio.gather(*(reviews.ask(cluster, namespace, stopped) for _ in range(_ASKERS)))

    asking = asyncio.run_coroutine_threadsafe(ask(), thread.loop)
    try:
        reviews.until_more()
        yield reviews
        reviews.until_more()
    finally:
        thread.loop.call_soon_threadsafe(stopped.set)
        asking.result(_TIMEOUT_SECONDS)
        thread.close()
    assert not reviews.lost, reviews.lost[:3]
