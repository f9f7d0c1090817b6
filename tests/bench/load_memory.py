"""Memory of each process of the demo during `make demo-load`."""

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
FLAT_PERCENT = 2.0
_PARTS = ("Rss:", "Pss:", "Pss_Anon:", "Pss_Shmem:")


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: resident; the same with shared pages counted in parts; of these no file's; and
    shared memory, of which PostgreSQL touches more and more of a fixed size."""

    rss: int = 0
    pss: int = 0
    own: int = 0
    shared: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(one + another for one, another in zip(self.all, other.all, strict=True)))

    @property
    def all(self) -> tuple[int, int, int, int]:
        """The four numbers."""
        return self.rss, self.pss, self.own, self.shared


@dataclass
class Samples:
    """Sizes by process, a list an entry of which belongs to each minute."""

    minutes: list[float] = field(default_factory=list)
    sizes: dict[str, list[Size]] = field(default_factory=dict)

    def take(self, minute: float, root: int) -> None:
        """Add the sizes of each process below `root`, and of all together, at `minute`."""
        self.minutes.append(minute)
        found = sizes_below(root)
        found["all"] = sum(found.values(), Size())
        for name, size in found.items():
            self.sizes.setdefault(name, [Size()] * (len(self.minutes) - 1)).append(size)
        for series in self.sizes.values():
            series.extend([Size()] * (len(self.minutes) - len(series)))

    def at(self, minute: float) -> int:
        """Return the index of the sample nearest to `minute`."""
        return min(range(len(self.minutes)), key=lambda index: abs(self.minutes[index] - minute))

    @property
    def warm(self) -> int:
        """The index of the first sample that is warm; of a short run the first of all."""
        return self.at(WARM_MINUTES) if self.minutes[-1] > 1.5 * WARM_MINUTES else 0

    def slope(self, series: list[int]) -> tuple[float, float]:
        """Return the growth a minute after the warm minutes, least squares, and it in percent of
        the fitted first value over the whole time."""
        xs, ys = self.minutes[self.warm :], series[self.warm :]
        middle, level = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - middle) ** 2 for x in xs) or 1
        slope = sum((x - middle) * (y - level) for x, y in zip(xs, ys, strict=True)) / spread
        first = level + slope * (xs[0] - middle)
        return slope, 100 * slope * (xs[-1] - xs[0]) / (first or 1)


def sizes_below(root: int) -> dict[str, Size]:
    """Return the sizes of each process of the tree below `root`, by a short name."""
    sizes: dict[str, Size] = {}
    for pid in process_tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            continue
        found = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
        name = short_name(command_of(pid))
        sizes[name] = sizes.get(name, Size()) + Size(*(found.get(part, 0) for part in _PARTS))
    return sizes


def run(options: argparse.Namespace) -> None:
    """Start a demo and its load, sample each minute, print the table and the growth."""
    samples = Samples()
    with tempfile.TemporaryDirectory() as folder:
        demo = start_demo(Path(folder) / "state", "--exec")  # pages of its own
        demo.wait_until_recording()
        load = start_load(demo, options.load_options, Path(folder) / "load.log")
        try:
            began = time.monotonic()
            for minute in range(options.minutes + 1):
                time.sleep(max(0.0, began + 60 * minute - time.monotonic()))
                samples.take((time.monotonic() - began) / 60, demo.process.pid)
                print(line_of_minute(samples, minute), flush=True)
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


def line_of_minute(samples: Samples, minute: int) -> str:
    """Return one minute's line: the own memory of all and of each process."""
    now = {name: series[-1].own for name, series in samples.sizes.items()}
    parts = " ".join(f"{name}={size / MIB:.1f}" for name, size in sorted(now.items()))
    return f"minute {minute}: MiB of own memory: {parts}"


def print_table(samples: Samples) -> None:
    """Print the own memory every five minutes, its growth after the warm-up, and which processes
    are flat."""
    step = 5 if samples.minutes[-1] > WARM_MINUTES else 1
    marks = [samples.at(minute) for minute in range(0, round(samples.minutes[-1]) + 1, step)]
    heads = "".join(f"{samples.minutes[index]:>7.0f}" for index in marks)
    since = f"from minute {samples.minutes[samples.warm]:.0f} on"
    print(f"MiB that are no file's, by minute; growth {since}, fitted; flat: <= {FLAT_PERCENT:g} %")
    print(f"{'':<16}{heads}  KiB/min       %   RSS %")
    grown = []
    for name, series in sorted(samples.sizes.items()):
        cells = "".join(f"{series[i].own / MIB:>7.1f}" for i in marks)
        slope, percent = samples.slope([size.own for size in series])
        _, rss = samples.slope([size.rss for size in series])
        print(f"{name:<16}{cells} {slope / 1024:>+8.1f} {percent:>+7.2f} {rss:>+7.2f}")
        if percent > FLAT_PERCENT:
            grown.append(f"{name} ({percent:+.1f} %)")
    shared = [series[i].shared for series in [samples.sizes["all"]] for i in marks]
    print(f"{'shared memory':<16}" + "".join(f"{size / MIB:>7.1f}" for size in shared))
    whole = [samples.sizes["all"][i].pss for i in marks]
    print(f"{'summed PSS':<16}" + "".join(f"{size / MIB:>7.1f}" for size in whole))
    print("flat: all" if not grown else "NOT flat: " + ", ".join(grown))
