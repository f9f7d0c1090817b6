"""Serves a cluster in a process that a test can kill: prints its kubeconfig, then waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from devcluster.server import DevCluster
from ipuhub.process import logs


async def main() -> None:
    cluster = DevCluster(Path(sys.argv[1]))
    await cluster.start()
    print(cluster.kubeconfig, flush=True)
    await asyncio.Event().wait()


logs.configure("warning", "text")  # standard output is for the test
asyncio.run(main())
