"""Random histories of edits, pods, losses and faults keep the invariants and come to an end."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.ipujob.privileges import Privileges
from jobs.webhooks.review import Review
from jobs.webhooks.validating import judge
from tests.builders.ipujobs import ipujob
from tests.chaos.stories import check_rest
from tests.fakes.chaosworld import ChaosWorld, Faults
from tests.fakes.longform import IS_LONG
from tests.fakes.wire import Mischief

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder

EXAMPLES = int(os.environ.get("CHAOS_EXAMPLES", "3000" if IS_LONG else "120"))
CODES = st.sampled_from([None, None, 0, 1, 7, 137])

EDITS = st.sampled_from(
    [
        {"suspend": True},
        {"suspend": False},
        {"jobInstances": 1},
        {"jobInstances": 2},
        {"jobInstances": 3},
        {"cleanPodPolicy": "All"},
        {"keepPartition": True},
        {"activeDeadlineSeconds": 20},
        {"ttlSecondsAfterFinished": 30},
        {"restartPolicy": {"type": "Always", "backOffLimit": 1}},
        {"restartPolicy": {"type": "Never"}},
        {"workers": "other image"},
    ]
)
WHAT = st.one_of(
    st.tuples(st.just("steps"), st.integers(1, 12)),
    st.tuples(st.just("edit"), EDITS),
    st.tuples(st.just("exit"), CODES),
    st.tuples(st.just("pod"), st.sampled_from(["delete", "evict"]), st.integers(0, 5)),
    st.tuples(st.just("partition"), st.integers(0, 2)),
    st.tuples(st.just("refuses"), st.booleans()),
    st.tuples(st.just("silent"), st.booleans()),
    st.tuples(st.just("kill"), st.integers(1, 6)),
    st.tuples(st.just("faults"), st.sampled_from([0.0, 0.2, 0.5])),
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("slow"), st.booleans()),
)
JOBS = st.tuples(  # with a launcher, workers, instances, restart policy, clean-up
    st.booleans(),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"]),
    st.sampled_from(["None", "Workers", "All"]),
)


def made(launched: bool, workers: int, instances: int, policy: str, clean: str) -> IPUJobBuilder:
    job = ipujob().without_finalizer().workers(workers).clean(clean)
    if not launched:
        job = job.without_launcher().instances(instances)
    return job.with_spec(restartPolicy={"type": policy, "backOffLimit": 2})


class History:
    """One job's history."""

    def __init__(self, seed: int) -> None:
        self.mischief = Mischief(random.Random(seed), share=0.0)
        self.world = ChaosWorld(Faults(mischief=self.mischief, downtime=6.0))
        self.code: int | None = None
        self.uid = ""

    async def live(self, what: tuple[Any, ...]) -> None:
        await getattr(self, f"_{what[0]}")(*what[1:])
        await self.world.step(**self.pods)

    @property
    def pods(self) -> dict[str, int | None]:
        has_launcher = "launcher" in (self.world.kube.job("sample") or {}).get("spec", {})
        return {"launcher_exit": self.code, "worker_exit": None if has_launcher else self.code}

    async def _steps(self, count: int) -> None:
        await self.world.run(count, **self.pods)

    async def _edit(self, fields: dict[str, Any]) -> None:
        """Only what the webhook lets through."""
        job = self.world.kube.job("sample")
        if job is None:
            return
        if fields.get("workers"):
            containers = [{"name": "main", "image": "app:2"}]
            fields = {"workers": {"replicas": 2, "template": {"spec": {"containers": containers}}}}
        if "jobInstances" in fields and "jobInstances" not in job["spec"]:
            return
        new = job | {"spec": job["spec"] | fields}
        review = Review("u", "UPDATE", "ipujobs", "", "default", "somebody", new, job)
        if not judge(review, Privileges()):
            self.world.kube.edit_job("sample", **fields)

    async def _exit(self, code: int | None) -> None:
        self.code = code

    async def _pod(self, how: str, number: int) -> None:
        pods = [p["metadata"]["name"] for p in self.world.kube.pods()]
        if pods:
            name = pods[number % len(pods)]
            pod = self.world.kube.objects["pods", "default", name]
            if how == "delete":
                self.world.kube.delete_pod(name)
            elif pod["status"]["phase"] in {"Pending", "Running"}:
                self.world.kube.evict_pod(name)

    async def _partition(self, instance: int) -> None:
        record = self.world.partitions.records.get((self.uid, instance))
        if record is not None and record.phase == "active":
            self.world.partitions.set_phase(self.uid, instance, "error", "an IPU is down")

    async def _refuses(self, is_refusing: bool) -> None:
        self.world.partitions.refuses = "out of order" if is_refusing else ""

    async def _silent(self, is_silent: bool) -> None:
        """A controller that answers again has lost its partitions."""
        if is_silent:
            self.world.partitions.is_silent = True
        elif self.world.partitions.is_silent:
            self.world.partitions.restart_empty()

    async def _kill(self, writes: int) -> None:
        self.world.faults.kill_at = self.world.writes + writes

    async def _faults(self, share: float) -> None:
        self.mischief.share = share

    async def _full(self, is_full: bool) -> None:
        self.world.kube.is_full = is_full

    async def _slow(self, is_slow: bool) -> None:
        if is_slow or not any(
            r.phase in {"creating", "releasing"} for r in self.world.partitions.records.values()
        ):
            self.world.partitions.is_slow = is_slow

    async def end(self) -> None:
        """Faults stop: the job finishes, then it is deleted and nothing is left."""
        self.mischief.share, self.world.faults.kill_at = 0.0, None
        self.world.kube.is_full, self.code = False, 0
        self.world.partitions.refuses = ""
        await self._silent(is_silent=False)
        world = self.world
        await world.run(6, **self.pods)  # those that wait for IPUs ask every few seconds
        await world.settle(**self.pods)
        state = world.state()
        assert state in {"Completed", "Failed", "Suspended", None}, state
        await check_rest(world)
        if state is not None:
            world.kube.delete_job("sample")
        await world.settle(**self.pods)
        assert world.kube.objects == {}
        assert world.partitions.held() == []


async def lived(job: tuple[Any, ...], happened: list[tuple[Any, ...]], seed: int) -> None:
    history = History(seed)
    history.uid = history.world.kube.add_job(made(*job).build())
    for what in happened:
        await history.live(what)
    await history.end()


@pytest.mark.timeout(3_600 if IS_LONG else 300)
@settings(max_examples=EXAMPLES, derandomize=not IS_LONG)
@given(JOBS, st.lists(WHAT, max_size=25), st.integers(0, 2**16))
def test_any_history_keeps_the_invariants_and_comes_to_an_end(
    job: tuple[Any, ...], happened: list[tuple[Any, ...]], seed: int
) -> None:
    asyncio.run(lived(job, happened, seed))
