"""Makes probers and monitors that start at once, to be killed: `python -m ... <server> <conninfo>`.

Each line on stdin (`prober` or `monitor`) forks one off; its process id is the answer. Everything
is imported before the first fork, so that one lives within milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from ipuhub.backoff import Backoff
from ipuhub.kube.client import KubeClient
from ipuhub.kube.credentials import ClusterConfig
from ipuhub.kube.watch import Pace
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording, RecordingOptions
from usage.monitor.api import PodCensus
from usage.monitor.rounds import Monitor, MonitorOptions
from usage.monitor.store import MonitorStore
from usage.pods.recorder import PodRecorder

STALE_SECONDS = 1.0
QUICK = Backoff(0.02, 0.2)
OPTIONS = RecordingOptions(
    batch_events=100, batch_seconds=0.02, buffer_events=500, pace=Pace(backoff=QUICK), backoff=QUICK
)


def now() -> datetime:
    return datetime.now(UTC)


async def prober(server: str, database: dict[str, Any]) -> None:
    async with KubeClient(ClusterConfig(server)) as client:
        await Recording(client, PodRecorder(), database, Health(), now, OPTIONS).run()


async def monitor(server: str, database: dict[str, Any]) -> None:
    options = MonitorOptions(stale_seconds=STALE_SECONDS, round_seconds=0.1)
    async with KubeClient(ClusterConfig(server), timeout_seconds=5) as client:
        store = MonitorStore(database, STALE_SECONDS)
        await Monitor(PodCensus(client, now), store, now, options).run(Health())


def main(server: str, conninfo: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    database = {**conninfo_to_dict(conninfo), "options": "-c timezone=UTC", "connect_timeout": 5}
    works = {"prober": prober, "monitor": monitor}
    while name := sys.stdin.readline().strip():
        child = os.fork()
        if not child:
            os.dup2(2, 1)  # log lines are no answers
            asyncio.run(works[name](server, database))
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
