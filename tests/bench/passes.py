"""Cost of a pass: plan() in the steady state and when it builds everything."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from jobs.operator.actions import PatchStatus
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, ipujob, launcher, observed, partition, worker

if TYPE_CHECKING:
    import argparse

    from jobs.operator.observed import Observed

_WORKERS = 16
_ROUNDS = 2000


def run(_: argparse.Namespace) -> None:
    """Print microseconds of CPU for one plan(), median of many."""
    job = ipujob().workers(_WORKERS)
    fresh = observed(job.build(), partitions=(partition(),))
    print(f"{_WORKERS} workers and a launcher; median of {_ROUNDS} calls, CPU time")
    settled = settle(job)
    for label, seen in (("builds everything", fresh), ("steady state", settled)):
        actions = len(plan(seen, NOW).actions)
        print(f"  {label} ({actions} actions): {microseconds(seen):.0f} us")


def settle(job: object) -> Observed:
    """Return the running job with the status that its own plan asked for."""
    manifest = job.build()  # type: ignore[attr-defined]
    pods = [worker(manifest, number).running() for number in range(_WORKERS)]
    pods.append(launcher(manifest).running())
    for _ in range(3):
        seen = observed(manifest, *pods, partitions=(partition(),), with_children=True)
        patches = [a for a in plan(seen, NOW).actions if isinstance(a, PatchStatus)]
        if not patches:
            break
        manifest["status"] = patches[0].status
    return seen


def microseconds(seen: Observed) -> float:
    """Return the median CPU time of one plan() in microseconds."""
    spent = []
    for _ in range(_ROUNDS):
        began = time.thread_time_ns()
        plan(seen, NOW)
        spent.append(time.thread_time_ns() - began)
    return statistics.median(spent) / 1000
