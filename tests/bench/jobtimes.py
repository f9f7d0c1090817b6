"""Jobs submitted, and when a watch first shows their pods and that they run."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from ipuhub.kube import resources
from ipuhub.kube.informer import Informer
from jobs.ipujob.names import FINALIZER, IPUJOBS
from tests.bench.surroundings import CONCURRENCY
from tests.e2e.running_demo import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest, Resource


def _says_running(job: Manifest) -> bool:
    return bool((job.get("status") or {}).get("launcherStatus") == "Running")


@dataclass(frozen=True)
class Subject:
    """A kind of job: its resource, the label of its pods with its name, and when a job runs."""

    resource: Resource
    label: str
    is_running: Callable[[Manifest], bool]


OURS = Subject(IPUJOBS, "graphcore.ai/ipujob-name", _says_running)


@dataclass
class Times:
    """The time of each first observation, per job, on the monotonic clock; `wanted` pods make a
    job."""

    wanted: int
    subject: Subject = OURS
    submitted: dict[str, float] = field(default_factory=dict)
    pods: dict[str, set[str]] = field(default_factory=dict)
    pods_at: dict[str, float] = field(default_factory=dict)
    running_at: dict[str, float] = field(default_factory=dict)

    def on_pod(self, _old: Any, new: Any) -> None:
        """A pod has changed."""
        labels = ((new or {}).get("metadata") or {}).get("labels") or {}
        name = labels.get(self.subject.label)
        if name is not None:
            seen = self.pods.setdefault(name, set())
            seen.add(new["metadata"]["name"])
            if len(seen) >= self.wanted:
                self.pods_at.setdefault(name, time.monotonic())

    def on_job(self, _old: Any, new: Any) -> None:
        """A job has changed."""
        if new and self.subject.is_running(new):
            self.running_at.setdefault(new["metadata"]["name"], time.monotonic())

    def figures(self) -> dict[str, float]:
        """Rates and waits."""
        began, last = min(self.submitted.values()), max(self.submitted.values())
        found = {}
        for what, at in (("pods created", self.pods_at), ("Running", self.running_at)):
            waits = sorted(at[name] - self.submitted[name] for name in self.submitted)
            found |= {
                f"last submit -> all {what}, s": max(at.values()) - last,
                f"jobs/s, first submit -> all {what}": len(waits) / (max(at.values()) - began),
                f"submit -> {what}, p50, s": waits[len(waits) // 2],
                f"submit -> {what}, p99, s": waits[max(int(len(waits) * 0.99) - 1, 0)],
            }
        return found

    async def until_all(self, jobs: int, seconds: float) -> None:
        """Wait until that many jobs run. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while min(len(self.pods_at), len(self.running_at)) < jobs:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def follow_jobs(
    client: KubeClient, namespace: str, launcher: bool, subject: Subject = OURS
) -> AsyncIterator[Times]:
    """Follow the namespace's pods and jobs."""
    times = Times(wanted=2 if launcher else 1, subject=subject)
    pods = Informer(client, resources.PODS, namespace=namespace)
    pods.add_handler(times.on_pod)
    jobs = Informer(client, subject.resource, namespace=namespace)
    jobs.add_handler(times.on_job)
    watches = [asyncio.create_task(one.run()) for one in (pods, jobs)]
    await asyncio.gather(pods.wait_synced(30), jobs.wait_synced(30))
    try:
        yield times
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def submit(
    client: KubeClient,
    manifests: list[dict[str, Any]],
    times: Times,
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """Create the jobs, 16 at a time; call `tell` with each created job."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def one(manifest: dict[str, Any]) -> None:
        async with limit:
            made = await client.create(times.subject.resource, manifest)
            times.submitted[manifest["metadata"]["name"]] = time.monotonic()
            tell(made)

    await asyncio.gather(*(one(manifest) for manifest in manifests))


@functools.cache
def _sample() -> dict[str, Any]:
    text = (EXAMPLES / "single-gcd-sample.yaml").read_text(encoding="utf-8")
    sample: dict[str, Any] = yaml.safe_load(text)
    return sample


def job_manifest(namespace: str, name: str, launcher: bool) -> dict[str, Any]:
    """Return the first example's job as the defaulting webhook leaves it (with the finalizer),
    without its launcher where none is wanted."""
    manifest = copy.deepcopy(_sample())
    manifest["metadata"] = {"name": name, "namespace": namespace, "finalizers": [FINALIZER]}
    if not launcher:
        del manifest["spec"]["launcher"]
        container = manifest["spec"]["workers"]["template"]["spec"]["containers"][0]
        container["command"] = ["python3", "serve.py"]
    return manifest
