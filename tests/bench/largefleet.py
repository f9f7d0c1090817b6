"""A V-IPU Proxy over 4,096 IPUs on 32 controllers, and an embedded API server with the jobs that
hold and wait, in a process of their own: for benches of the pages that show them.

`large_fleet` starts the process and lets settings and environment name its servers. The process
reads from its standard input who holds partitions and who waits, and ends with that input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.fakes.background import Cluster

CONTROLLERS: Final = 32
MACHINES: Final = 32  # of each controller
HELD_IPUS: Final = 4064
MOST_HELD: Final = 1024  # jobs
SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
WAITING: Final = 40


@contextmanager
def large_fleet() -> Iterator[None]:
    """Let nearly all IPUs be held by the newest jobs of the database, and others wait."""
    from django.conf import settings

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.largefleet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(f"{json.dumps(_requests())}\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
        os.environ |= found
        settings.KUBECONFIG, settings.PROXY_URL = found["KUBECONFIG"], found["IPUHUB_PROXY_URL"]
        settings.PROXY_TOKEN = found["IPUHUB_PROXY_TOKEN"]
        yield
    finally:
        process.stdin.close()
        process.wait(60)


def _requests() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return who holds partitions, of all sizes in turn, and who waits for a whole IPU-Link domain,
    which is not left."""
    from jobs.models import JobRecord

    newest = JobRecord.objects.order_by("-created_at").values("uid", "namespace", "name", "user")
    held: list[dict[str, Any]] = []
    left = HELD_IPUS
    for number, job in enumerate(newest[:MOST_HELD]):
        size = min(SIZES[number % len(SIZES)], left)
        if size not in SIZES:
            continue
        left -= size
        held.append(job | {"size": size})
    waiting = newest[MOST_HELD : MOST_HELD + WAITING]
    return held, [job | {"size": SIZES[-1]} for job in waiting]


def main() -> None:
    """Serve until the standard input ends."""
    from partitions.proxy.fleet import FleetOptions
    from tests.fakes.background import Background, Cluster, Proxy
    from tests.integration.proxy.conftest import World

    answers, sys.stdout = sys.stdout, sys.stderr  # which the log takes from here on
    background = Background()
    with tempfile.TemporaryDirectory(prefix="ipuhub-bench-") as folder:
        cluster = Cluster(background, Path(folder))
        world = World(fleet_options=FleetOptions(topology_seconds=3600))
        for number in range(1, CONTROLLERS + 1):
            world.add_vipu(f"v{number}:8090", machines=MACHINES)
        world.listed = ",".join(f"{each}:vipu-ctrl={each[:-5]}" for each in world.vipus)
        proxy = Proxy(background, world)
        held, waiting = json.loads(sys.stdin.readline())
        _add_jobs(cluster, held, waiting)
        for each in (*held, *waiting):
            each.pop("user")
        for each in held:
            proxy.hold(**each)
        # A call that gets nothing takes seconds, so all of them are made at once.
        with ThreadPoolExecutor(WAITING) as pool:
            list(pool.map(lambda each: proxy.hold(**each), waiting))
        servers = {
            "KUBECONFIG": cluster.kubeconfig,
            "IPUHUB_PROXY_URL": proxy.url,
            "IPUHUB_PROXY_TOKEN": "web",
        }
        print(json.dumps(servers), file=answers, flush=True)
        sys.stdin.read()
        proxy.close()
        cluster.stop()


def _add_jobs(
    cluster: Cluster, held: Iterable[dict[str, Any]], waiting: Iterable[dict[str, Any]]
) -> None:
    """Create the jobs in the cluster, under the UIDs that the database has for them."""
    ids: list[str] = []
    for namespace in sorted({job["namespace"] for job in (*held, *waiting)}):
        cluster.add_namespace(namespace)
    with patch("devcluster.storage.metadata.uuid", SimpleNamespace(uuid4=ids.pop)):
        for jobs, active in ((held, 1), (waiting, 0)):
            status = {"workersStatus": {"active": active}}
            for job in jobs:
                ids.append(job["uid"])
                cluster.add_job(job["name"], job["namespace"], user=job["user"], **status)


if __name__ == "__main__":
    main()
