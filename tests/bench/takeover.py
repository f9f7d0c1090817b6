"""How long nobody works after a leader was killed or stopped, with the default 15/10/2 s."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.demo_figures import spread
from tests.bench.webhooks import free_port
from tests.e2e.running_demo import eventually, start_demo, stop_demo

if TYPE_CHECKING:
    import argparse

    from tests.e2e.running_demo import RunningDemo

LEASES = {
    "run_operator": "ipu-operator",
    "run_vipu_proxy": "ipuhub-proxy",
    "run_prober": "ipuhub-prober",
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
        eventually(lambda: "standing by" in log.read_text(), f"{identity} standing by", 120)
        return started

    def holders(self) -> dict[str, str]:
        """Who holds each Lease now."""
        text = self.demo.kubectl("get", "leases", "-n", "ipuhub-system", "-o", "json")
        return {
            lease["metadata"]["name"]: str(lease["spec"].get("holderIdentity") or "")
            for lease in json.loads(text)["items"]
        }

    def seconds_until(self, identities: dict[str, str]) -> dict[str, float]:
        """Seconds until each process's Lease is held by the given identity."""
        began, found = time.monotonic(), dict[str, float]()
        while len(found) < len(identities):
            holders = self.holders()
            for name, identity in identities.items():
                if name not in found and holders[LEASES[name]] == identity:
                    found[name] = time.monotonic() - began
            assert time.monotonic() - began < 60, f"no takeover: {identities}, {found}"
        return found


def run(options: argparse.Namespace) -> None:
    """Print, for operator, proxy and prober, the seconds after kill -9 and after SIGTERM."""
    figures: dict[str, dict[str, list[float]]] = {
        how: {name: [] for name in LEASES} for how in ("kill -9", "SIGTERM")
    }
    with tempfile.TemporaryDirectory() as folder:
        demo = start_demo(Path(folder) / "state")
        replicas = Replicas(demo, Path(folder))
        try:
            demo.wait_until_recording()
            leaders = {name: demo.pid_of(name) for name in LEASES}
            os.kill(demo.process.pid, signal.SIGSTOP)  # it would start again what ends
            for number in range(options.rounds):
                for how, given in (("kill -9", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
                    identities = {name: f"{name}-{number}-{given.name}" for name in LEASES}
                    next_ones = {
                        name: replicas.start(leaders[name], identities[name]).pid for name in LEASES
                    }
                    for pid in leaders.values():
                        os.kill(pid, given)
                    for name, seconds in replicas.seconds_until(identities).items():
                        figures[how][name].append(seconds)
                    leaders = next_ones
        finally:
            for process in replicas.running:
                process.kill()
                process.wait()
            os.kill(demo.process.pid, signal.SIGCONT)
            stop_demo(demo)
    for how, found in figures.items():
        for name, seconds in found.items():
            print(f"{how}: {name}: {spread(seconds)} s until another replica leads")


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with."""
    parts = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def command_of(pid: int) -> list[str]:
    """The command line a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
