"""What the memory of each process of the demo does under `make demo-load`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.demo_figures import command_of, process_tree, short_name
from tests.e2e.running_demo import ROOT, start_demo, stop_demo

if TYPE_CHECKING:
    import argparse

    from tests.e2e.running_demo import RunningDemo

MIB = 2**20
# The first minutes fill caches; what grows after them grows for ever.
WARM_MINUTES = 10


@dataclass
class Samples:
    """Sizes in bytes, a list an entry of which belongs to each minute."""

    minutes: list[float] = field(default_factory=list)
    sizes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def take(self, minute: float, root: int) -> None:
        """Add RSS and PSS of each process below `root` at `minute`."""
        self.minutes.append(minute)
        for name, found in rss_and_pss(root).items():
            self.sizes.setdefault(name, [(0, 0)] * (len(self.minutes) - 1)).append(found)
        for series in self.sizes.values():
            series.extend([(0, 0)] * (len(self.minutes) - len(series)))

    def at(self, minute: float) -> int:
        """Return the index of the sample nearest to `minute`."""
        return min(range(len(self.minutes)), key=lambda index: abs(self.minutes[index] - minute))

    def slope(self, name: str) -> float:
        """Return the growth of the PSS in bytes a minute after the warm minutes, least squares."""
        first = self.at(WARM_MINUTES) if self.minutes[-1] > 2 * WARM_MINUTES else 0
        xs, ys = self.minutes[first:], [pss for _, pss in self.sizes[name][first:]]
        middle, level = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - middle) ** 2 for x in xs)
        return sum((x - middle) * (y - level) for x, y in zip(xs, ys, strict=True)) / (spread or 1)


def rss_and_pss(root: int) -> dict[str, tuple[int, int]]:
    """Return RSS and PSS in bytes of each process of the tree below `root`, by a short name."""
    sizes: dict[str, tuple[int, int]] = {}
    for pid in process_tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:3]}
        name = short_name(command_of(pid))
        rss, pss = sizes.get(name, (0, 0))
        sizes[name] = (rss + found.get("Rss:", 0), pss + found.get("Pss:", 0))
    return sizes


def run(options: argparse.Namespace) -> None:
    """Start a demo and its load, sample each minute, print the table and the growth."""
    samples = Samples()
    with tempfile.TemporaryDirectory() as folder:
        demo = start_demo(Path(folder) / "state")
        demo.wait_until_recording()
        load = start_load(demo, options.load_options, Path(folder) / "load.log")
        try:
            began = time.monotonic()
            for minute in range(options.minutes + 1):
                time.sleep(max(0.0, began + 60 * minute - time.monotonic()))
                samples.take((time.monotonic() - began) / 60, demo.process.pid)
                print(said(samples, minute), flush=True)
            counts = {kind: count(demo, kind) for kind in ("ipujobs", "pods", "events")}
        finally:
            load.send_signal(signal.SIGINT)
            load.wait(60)
            stop_demo(demo)
        submitted = (Path(folder) / "load.log").read_text().count("submitted ")
    print(f"\nat the end: {counts}; log lines of submitted jobs: {submitted}")
    print_table(samples)


def start_load(demo: RunningDemo, given: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `manage.py run_demo_load` on `demo`, outside its process tree."""
    command = [sys.executable, str(ROOT / "manage.py"), "run_demo_load"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, "--kubeconfig", str(demo.kubeconfig), *given.split()],
            env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )


def count(demo: RunningDemo, kind: str) -> int:
    """Return how many objects of `kind` the API server has."""
    return len(demo.kubectl("get", kind, "-A", "-o", "name").split())


def said(samples: Samples, minute: int) -> str:
    """Return one minute's line: summed PSS, and each process's."""
    now = {name: series[-1][1] for name, series in samples.sizes.items()}
    parts = " ".join(f"{name}={size / MIB:.1f}" for name, size in sorted(now.items()))
    return f"minute {minute}: {sum(now.values()) / MIB:.0f} MiB PSS; {parts}"


def print_table(samples: Samples) -> None:
    """Print RSS / PSS at a start, a third, two thirds and the end, and the growth of the PSS."""
    last = samples.minutes[-1]
    marks = [samples.at(last * part / 3) for part in range(4)]
    heads = "".join(f"{samples.minutes[index]:>11.0f} min" for index in marks)
    print(f"{'RSS / PSS in MiB':<18}{heads}   growth, KiB/min")
    for name, series in sorted(samples.sizes.items()):
        cells = "".join(f"{series[i][0] / MIB:>8.1f} /{series[i][1] / MIB:>5.1f}" for i in marks)
        print(f"{name:<18}{cells}   {samples.slope(name) / 1024:+.1f}")
    sums = [sum(series[i][1] for series in samples.sizes.values()) for i in marks]
    print("summed PSS: " + ", ".join(f"{size / MIB:.0f}" for size in sums) + " MiB")
