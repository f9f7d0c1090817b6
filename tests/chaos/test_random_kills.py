"""kill -9 of every process at random moments of many jobs: all finish, nothing leaks."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
from http import HTTPStatus
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.running_demo import EXAMPLES, start_demo, stop_demo
from tests.fakes.longform import IS_LONG
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.running_demo import RunningDemo

JOBS = int(os.environ.get("CHAOS_JOBS", "50" if IS_LONG else "10"))
KILLS = int(os.environ.get("CHAOS_KILLS", "24" if IS_LONG else "4"))
LATE_KILLS = KILLS // 4  # while the last jobs run and end
SEED = int(os.environ.get("CHAOS_SEED", "20261121"))
CORE = "/api/v1/namespaces/default"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
IPUJOBS = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
MADE = (
    *(f"{CORE}/{kind}" for kind in ("configmaps", "serviceaccounts")),
    *(f"{RIGHTS}/{kind}" for kind in ("roles", "rolebindings")),
)
VICTIMS = ("run_operator", "run_vipu_proxy", "partitions.vipu.server", "run_devcluster")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[RunningDemo]:
    running = start_demo(tmp_path / "demo")
    try:
        yield running
    finally:
        stop_demo(running)


def job(number: int, chance: random.Random) -> dict[str, Any]:
    example = "single-gcd-sample.yaml" if number % 2 else "inference-1x.yaml"
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / example).read_text())
    manifest["metadata"] = {
        "name": f"chaos-{number}",
        "annotations": {
            "sim/runtime-seconds": str(chance.choice([1, 2, 3])),
            "sim/exit-code": str(chance.choice([0, 0, 0, 1])),
        },
    }
    return manifest


def kill(demo: RunningDemo, victim: str) -> None:
    try:
        os.kill(demo.pid_of(victim), signal.SIGKILL)
    except (AssertionError, ProcessLookupError):
        return  # it is starting again just now


def submit(demo: RunningDemo, manifest: dict[str, Any]) -> None:
    def accepted() -> bool:
        done = demo.try_kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        return done.returncode == 0

    wait_until(accepted, f"{manifest['metadata']['name']} accepted")


def listing(demo: RunningDemo, *paths: str) -> list[dict[str, Any]]:
    try:
        answers = [demo.ask("GET", path) for path in paths]
    except (OSError, http.client.HTTPException):
        return [{"unreachable": True}]
    if any(code >= HTTPStatus.INTERNAL_SERVER_ERROR for code, _ in answers):  # it starts again
        return [{"unreachable": True}]
    assert all(code == HTTPStatus.OK for code, _ in answers), answers
    return [item for _, answer in answers for item in answer["items"]]


@pytest.mark.timeout(900)
def test_jobs_finish_whatever_is_killed(demo: RunningDemo) -> None:
    chance = random.Random(SEED)
    manifests = [job(number, chance) for number in range(JOBS)]
    kills = sorted(chance.choices(range(JOBS), k=KILLS))
    victims = cycle(chance.sample(VICTIMS, len(VICTIMS)))
    for number, manifest in enumerate(manifests):
        submit(demo, manifest)
        for _ in range(kills.count(number)):
            kill(demo, next(victims))
    for late in range(LATE_KILLS, 0, -1):
        most = JOBS - 2 - 2 * late
        wait_until(lambda: finished(demo) >= most, "all but some finished", 300)  # noqa: B023
        kill(demo, next(victims))
    wait_until(lambda: finished(demo) == JOBS, f"all {JOBS} jobs finished (seed {SEED})", 300)
    wanted = {
        m["metadata"]["name"]: "Completed"
        if m["metadata"]["annotations"]["sim/exit-code"] == "0"
        else "Failed"
        for m in manifests
    }
    found = {j["metadata"]["name"]: j["status"]["launcherStatus"] for j in listing(demo, IPUJOBS)}
    assert found == wanted
    wait_until(lambda: ipus_held(demo) == 0, "no IPU is held")
    assert vipu_partitions(demo) == []

    demo.kubectl("delete", "ipujobs", "--all", "--timeout=120s")
    assert listing(demo, f"{CORE}/pods") == []
    wait_until(
        lambda: (
            not [
                item
                for item in listing(demo, *MADE)
                if item["metadata"]["name"].startswith("chaos-")
            ]
        ),
        "the jobs' ConfigMaps, accounts and roles are collected",
        60,
    )


def finished(demo: RunningDemo) -> int:
    jobs = listing(demo, IPUJOBS)
    phases = [job.get("status", {}).get("launcherStatus") for job in jobs]
    return sum(phase in {"Completed", "Failed"} for phase in phases)


def ipus_held(demo: RunningDemo) -> int | None:
    try:
        total: dict[str, int] = demo.stats()["total"]
    except (OSError, KeyError):
        return None  # the proxy is starting again just now, or does not lead yet
    return total["used"]


def vipu_partitions(demo: RunningDemo) -> list[str]:
    """Ask the V-IPU controller itself, not the tracker, what exists."""
    import asyncio

    from partitions.vipu.client import VipuClient

    async def ask() -> list[str]:
        client = VipuClient(f"127.0.0.1:{demo.ports['V-IPU']}")
        try:
            return [partition.id for partition in await client.list_partitions()]
        finally:
            await client.close()

    return asyncio.run(ask())
