"""Start-up time and memory of the demo."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.running_demo import EXAMPLES, start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> None:
    """Print first start, second start, apply -> pods created -> Running, and summed PSS."""
    first, second, burnt, created, running, recording, memory = [], [], [], [], [], [], {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder) / "state"
            began = time.monotonic()
            demo = start_demo(directory)
            first.append(time.monotonic() - began)
            stop_demo(demo)
            began = time.monotonic()
            demo = start_demo(directory)
            up = time.monotonic()
            second.append(up - began)
            burnt.append(sum(cpu_seconds(demo.process.pid).values()))
            began = time.monotonic()
            demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
            applied = time.monotonic()

            def pods() -> bool:
                return len(demo.kubectl("get", "pods", "-o", "name").split()) == 2  # noqa: B023

            wait_until(pods, "pods", 30)
            created.append(time.monotonic() - applied)
            wait_until(lambda: demo.status("ipujob-sample") == "Running", "Running", 30)  # noqa: B023
            running.append(time.monotonic() - applied)
            demo.wait_until_recording()
            recording.append(time.monotonic() - up)
            memory = proportional_set_sizes(demo.process.pid)
            stop_demo(demo)
    for label, values in (
        ("first start, packages installed", first),
        ("second start", second),
        ("CPU of all processes at the second start", burnt),
        ("up -> what runs is recorded", recording),
        ("kubectl apply returned -> both pods exist", created),
        ("kubectl apply returned -> Running", running),
    ):
        print(f"{label}: {spread(values)} s")
    for name, size in memory.items():
        print(f"  {name:<24} {size / 2**20:7.1f} MiB PSS")
    print(f"summed PSS: {sum(memory.values()) / 2**20:.0f} MiB")


def spread(values: list[float]) -> str:
    """Return median and range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def process_tree(root: int) -> list[int]:
    """Return `root` and all processes below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])
    tree = {root}
    while grown := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= grown
    return sorted(tree)


def cpu_seconds(root: int) -> dict[str, float]:
    """Return the CPU time of each process of the tree, and of its ended children, by name."""
    tick = os.sysconf("SC_CLK_TCK")
    spent: dict[str, float] = {}
    for pid in process_tree(root):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        name = short_name(command_of(pid))
        spent[name] = spent.get(name, 0.0) + sum(map(int, stat[11:15])) / tick
    return spent


def proportional_set_sizes(root: int) -> dict[str, int]:
    """Return the PSS in bytes of each process of the tree below `root`, by a short name."""
    sizes: dict[str, int] = {}
    for pid in process_tree(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        kib = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        name = short_name(command_of(pid))
        sizes[name] = sizes.get(name, 0) + kib * 1024
    return sizes


def command_of(pid: int) -> str:
    """Return the command line of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def short_name(command: str) -> str:
    """Name a process by what it runs."""
    cluster = ("run_devcluster", "run_kubelet", "vipu.server", "run_vipu_proxy", "run_operator")
    web = ("run_webhooks", "run_web", "run_prober", "run_monitor", "celery", "postgres")
    for word in (*cluster, *web, "forkserver", "manage.py demo"):
        if word in command:
            return word
    return "other" if not command.strip() else command.split(maxsplit=1)[0].rpartition("/")[2]
