"""Time without a leader after a kill or a stop, with the default lease times of 15/10/2 s."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.demo_figures import spread
from tests.e2e.running_demo import start_demo, stop_demo
from tests.fakes.freeport import free_port
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    import argparse

    from tests.e2e.running_demo import RunningDemo

LEADS = "leading"
# What each says once it has read all it needs for its work.
WORKS = {
    "run_operator": "caches are complete",
    "run_vipu_proxy": "tracker available",
    "run_prober": "watch=pods",
}
PORTS = ("IPUHUB_HEALTH_PORT", "PROXY_PORT")
TIMES = ("DURATION", "RENEW", "RETRY")


@dataclass
class Replicas:
    """More replicas of the demo's processes, started as it started its own."""

    demo: RunningDemo
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, like: int, identity: str) -> subprocess.Popen[bytes]:
        """Start another replica of the process `like`, and wait until it stands by."""
        environment = environment_of(like) | {"IPUHUB_IDENTITY": identity}
        environment |= {name: str(free_port()) for name in PORTS if name in environment}
        for name in TIMES:
            environment.pop(f"IPUHUB_LEASE_{name}_SECONDS", None)
        log = self.folder / f"{identity}.log"
        with log.open("wb") as output:
            started = subprocess.Popen(
                command_of(like), env=environment, stdout=output, stderr=output
            )
        self.running.append(started)
        wait_until(lambda: "standing by" in log.read_text(), f"{identity} standing by", 120)
        return started

    def seconds_until(self, words: str, identity: str, since: float) -> float:
        """Seconds from the time `since` until a replica has said these words in its log."""
        log = self.folder / f"{identity}.log"

        def line_with_words() -> str:
            return next((line for line in log.read_text().splitlines() if words in line), "")

        wait_until(lambda: bool(line_with_words()), f"{words!r} of {identity}", 60)
        return datetime.fromisoformat(line_with_words().split(maxsplit=1)[0]).timestamp() - since


def run(options: argparse.Namespace) -> None:
    """Print, for operator, proxy and prober, the seconds after kill -9 and after SIGTERM."""
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        demo = start_demo(Path(folder) / "state")
        replicas = Replicas(demo, Path(folder))
        try:
            demo.wait_until_recording()
            leaders = {name: demo.pid_of(name) for name in WORKS}
            os.kill(demo.process.pid, signal.SIGSTOP)  # it would start again what ends
            for number in range(options.rounds):
                for how, given in (("kill -9", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
                    identities = {name: f"{name}-{number}-{given.name}" for name in WORKS}
                    next_ones = {
                        name: replicas.start(leaders[name], identities[name]).pid for name in WORKS
                    }
                    began = time.time()
                    for pid in leaders.values():
                        os.kill(pid, given)
                    for name, identity in identities.items():
                        leads = replicas.seconds_until(LEADS, identity, began)
                        works = replicas.seconds_until(WORKS[name], identity, began)
                        figures.setdefault((how, name), []).append((leads, works))
                    leaders = next_ones
        finally:
            for process in replicas.running:
                process.kill()
                process.wait()
            os.kill(demo.process.pid, signal.SIGCONT)
            stop_demo(demo)
    for (how, name), found in figures.items():
        held, began_work = (spread(list(each)) for each in zip(*found, strict=True))
        print(f"{how}: {name}: leads after {held} s, works after {began_work} s")


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with."""
    parts = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def command_of(pid: int) -> list[str]:
    """The command line a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
