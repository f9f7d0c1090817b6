"""CPU of the launcher's init container, which runs under a tenth of a CPU before each job."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.demo_figures import spread
from tests.fakes.launcherlab import ALONE, stored_job

if TYPE_CHECKING:
    import argparse

    from tests.fakes.launcherlab import Job

WORKERS = 3


async def run(options: argparse.Namespace) -> None:
    """Print user and system time of the program with three ready workers, and of Python alone."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise SystemExit("kubectl is needed: it is what the init container copies")
    with tempfile.TemporaryDirectory(prefix="ipuhub-bench-") as folder:
        async with stored_job(Path(folder), Path(kubectl), WORKERS) as job:
            await job.grant()
            for number in range(WORKERS):
                await job.add_worker(number)
            ours, bare = [], []
            delivered = Path(job.environment["IPUHUB_KUBECTL_FOLDER"]) / "kubectl"
            for _ in range(options.rounds):
                delivered.unlink(missing_ok=True)  # as in a new pod: nothing to cut off first
                ours.append(await cpu_ms(ALONE, job))
                bare.append(await cpu_ms([sys.executable, "-IS", "-c", "pass"], job))
    megabytes = Path(kubectl).stat().st_size / 1e6
    print(f"init container, {WORKERS} ready workers, kubectl of {megabytes:.0f} MB; CPU, ms")
    print(f"  {'ipuhub-launcher':<30} {spread(ours)}")
    print(f"  {'Python that does nothing':<30} {spread(bare)}")


async def cpu_ms(command: list[str], job: Job) -> float:
    """Milliseconds of user and system time of one run, which must end with 0."""

    def one() -> float:
        child = subprocess.Popen(command, env=job.environment, stdout=subprocess.DEVNULL)
        _, code, used = os.wait4(child.pid, 0)
        child.returncode = code
        assert code == 0, f"{command} ended with {code}"
        return 1000 * (used.ru_utime + used.ru_stime)

    return await asyncio.to_thread(one)
