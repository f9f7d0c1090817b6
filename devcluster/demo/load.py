"""io: `manage.py run_demo_load`: submits sample jobs to a cluster until it is stopped."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

import structlog

from devcluster.demo.cluster import apply_manifest
from devcluster.demo.samples import (
    LABEL,
    TEAMS,
    Outcome,
    access_manifests,
    draw_job,
    job_manifest,
    namespace_manifest,
)
from ipuhub.concurrency import wait_set
from ipuhub.kube.client import KubeClient
from ipuhub.kube.errors import ApiError, NotFound
from ipuhub.kube.resources import Resource

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from devcluster.demo.samples import SampleJob
    from ipuhub.kube.resources import Manifest

IPUJOBS: Final = Resource("graphcore.ai", "v1alpha1", "ipujobs", "IPUJob")
_FINISHED: Final = frozenset({"Completed", "Failed"})
_SELECTOR: Final = f"{LABEL}=true"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The density of the stream. `jobs` 0: until stopped."""

    pause_seconds: float = 3.0
    alive: int = 8
    kept: int = 20
    shortest_seconds: float = 5.0
    longest_seconds: float = 120.0
    jobs: int = 0
    seed: int = 1


@dataclass
class DemoLoad:
    """One stream of jobs, each made by one of its team's people, whom `client` impersonates.

    `counts` has the number of submitted and deleted jobs.
    """

    client: KubeClient
    options: LoadOptions
    clock: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)
    _dooms: dict[tuple[str, str], float] = field(default_factory=dict)
    _people: dict[str, KubeClient] = field(default_factory=dict)

    async def run(self, stop: asyncio.Event) -> None:
        """Submit jobs until `stop` is set, or `options.jobs` are submitted and have finished."""
        random = Random(self.options.seed)  # noqa: S311  # a repeatable stream, no secret
        await self._make_namespaces()
        first = await self._first_free_number()
        try:
            await self._submit_jobs(stop, random, first)
        finally:
            for client in self._people.values():
                await client.close()

    async def _submit_jobs(self, stop: asyncio.Event, random: Random, first: int) -> None:
        number = first
        while not stop.is_set():
            try:
                alive = await self._tidy()
                wanted = not self.options.jobs or number - first < self.options.jobs
                if wanted and alive < self.options.alive:
                    await self._submit(self._draw(random, number))
                    number += 1
                elif not wanted and not alive:
                    return
            except ApiError as error:
                # A busy or restarting API server: the stream continues when it is back.
                log.warning("the API server refused", why=str(error))
            await wait_set(stop, self.options.pause_seconds)

    def _draw(self, random: Random, number: int) -> SampleJob:
        return draw_job(random, number, self.options.shortest_seconds, self.options.longest_seconds)

    async def _make_namespaces(self) -> None:
        for team in TEAMS:
            for manifest in (namespace_manifest(team), *access_manifests(team)):
                await apply_manifest(self.client, manifest)

    async def _first_free_number(self) -> int:
        """One more than the highest number in a name, so that a second run continues."""
        listed = await self.client.list(IPUJOBS, label_selector=_SELECTOR)
        numbers = [_metadata(job)["name"].rpartition("-")[2] for job in listed.items]
        return max((int(text) for text in numbers if text.isdigit()), default=0) + 1

    async def _submit(self, job: SampleJob) -> None:
        await self._client_of(job.user).create(IPUJOBS, job_manifest(job))
        self.counts["submitted"] += 1
        if job.outcome is Outcome.DELETED:
            self._dooms[job.team.namespace, job.name] = self.clock() + job.seconds / 2
        log.info(
            "submitted",
            job=f"{job.team.namespace}/{job.name}",
            ipus=job.ipus,
            seconds=round(job.seconds),
            outcome=str(job.outcome),
        )

    def _client_of(self, user: str) -> KubeClient:
        if user not in self._people:
            self._people[user] = KubeClient(self.client.config.acting_as(user))
        return self._people[user]

    async def _tidy(self) -> int:
        """Delete what is due and the oldest finished jobs; return how many are unfinished."""
        listed = await self.client.list(IPUJOBS, label_selector=_SELECTOR)
        finished = [job for job in listed.items if _state(job) in _FINISHED]
        finished.sort(key=lambda job: (_metadata(job)["creationTimestamp"], _metadata(job)["name"]))
        for job in finished[: max(len(finished) - self.options.kept, 0)]:
            await self._delete(_metadata(job)["namespace"], _metadata(job)["name"])
        for key, at in list(self._dooms.items()):
            if self.clock() >= at:
                await self._delete(*key)
                del self._dooms[key]
        return len(listed.items) - len(finished)

    async def _delete(self, namespace: str, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.client.delete(IPUJOBS, name, namespace)
            self.counts["deleted"] += 1


def _metadata(job: Manifest) -> Manifest:
    found: Manifest = job["metadata"]
    return found


def _state(job: Manifest) -> str:
    return str((job.get("status") or {}).get("launcherStatus") or "")
