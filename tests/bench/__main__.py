"""`make bench ARGS="burst --jobs 100"`: prints figures and ratios; judges nothing."""

from __future__ import annotations

import argparse
import asyncio
from importlib import import_module
from pathlib import Path

_MODULES = {
    "burst": "burst",
    "controller-edits": "controller_edits",
    "dashboards": "dashboards",
    "demo": "demo_figures",
    "fragmentation": "fragmentation",
    "launcher": "launcher",
    "load-memory": "load_memory",
    "memory": "operator_memory",
    "pages": "pages",
    "pass": "passes",
    "proxy-reads": "proxy_reads",
    "starts": "starts",
    "stream": "stream",
    "takeover": "takeover",
    "trial": "trial",
    "usage-downloads": "usage_downloads",
    "usage-ingest": "usage_ingest",
    "usage-reports": "usage_reports",
    "vipu-cycles": "vipu_cycles",
    "visits": "visits",
    "webhooks": "webhooks",
}


def main() -> None:
    """Run one benchmark, or all with small sizes."""
    parser = argparse.ArgumentParser(prog="make bench")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("demo", help="start, second start, and memory of the demo")
    start.add_argument("--rounds", type=int, default=3)
    memory = commands.add_parser("load-memory", help="memory of the demo under demo-load")
    memory.add_argument("--minutes", type=int, default=30)
    memory.add_argument("--load-options", default="", help="of run_demo_load, in one word")
    hooks = commands.add_parser("webhooks", help="answers of run_webhooks over TLS")
    hooks.add_argument("--rate", type=int, default=100, help="requests a second")
    hooks.add_argument("--seconds", type=int, default=20)
    hooks.add_argument("--rounds", type=int, default=3)
    leaders = commands.add_parser("takeover", help="after kill -9 and SIGTERM of a leader")
    leaders.add_argument("--rounds", type=int, default=3)
    look = commands.add_parser("trial", help="the chart's trial on a cluster with real nodes")
    look.add_argument("--nodes", type=Path, required=True, help="folder of the running cluster")
    look.add_argument("--kit", type=Path, required=True, help="folder of its command `load`")
    look.add_argument("--rounds", type=int, default=3)
    look.add_argument("--copies", type=int, default=5, help="of the launcher pod, a round")
    commands.add_parser("pass", help="plan() and a no-op pass of the operator")
    size = commands.add_parser("burst", help="bursts of jobs beside a floor program")
    size.add_argument("--jobs", type=int, nargs="+", default=[100])
    flow = commands.add_parser("stream", help="a stream of jobs, faster and faster")
    flow.add_argument("--rates", type=float, nargs="+", default=[10], help="jobs/s")
    flow.add_argument("--seconds", type=float, default=60, help="of each rate")
    for one in (size, flow):
        one.add_argument(
            "--kubeconfig", type=Path, help="a real cluster; default: the embedded API"
        )
        one.add_argument("--rounds", type=int, default=3)
        one.add_argument("--shape", choices=["both", "launcher", "plain"], default="both")
    begin = commands.add_parser("starts", help="single jobs and a burst, beside the floor")
    begin.add_argument("--kubeconfig", type=Path, help="a real cluster; default: the embedded API")
    begin.add_argument("--singles", type=int, default=15)
    begin.add_argument("--jobs", type=int, default=100, help="of a burst")
    begin.add_argument("--create-seconds", type=float, nargs="+", default=[0.0, 0.5])
    begin.add_argument("--alone", action="store_true", help="the operator beside no floor")
    begin.add_argument("--webhooks", action="store_true", help="a real server asks ours, too")
    begin.add_argument("--rounds", type=int, default=3)
    begin.add_argument(
        "--mpi-operator",
        type=Path,
        help="its program: bursts beside it in place of the floor; needs its manifests applied",
    )
    gate = commands.add_parser("launcher", help="CPU of the launcher's init container")
    gate.add_argument("--rounds", type=int, default=31)
    heap = commands.add_parser("memory", help="memory of the operator with thousands of jobs")
    heap.add_argument("--jobs", type=int, default=5_000, help="of four pods each")
    heap.add_argument("--relists", type=int, default=3)
    full = commands.add_parser("pages", help="queries and server time of each page")
    seen = commands.add_parser("visits", help="first content and bytes of pages, in Chromium")
    for one, rounds in ((full, 20), (seen, 7)):
        one.add_argument("--jobs", type=int, default=100_000)
        one.add_argument("--lifetimes", type=int, default=1_000_000)
        one.add_argument("--rounds", type=int, default=rounds)
        one.add_argument("--database", type=Path, help="folder of a database to fill once and keep")
    full.add_argument("--only", nargs="+", default=[], help="pages whose address has one of these")
    opened = commands.add_parser("dashboards", help="open overviews at a running demo")
    opened.add_argument("--demo", type=Path, default=Path(".ipuhub"), help="folder of the demo")
    opened.add_argument("--url", default="http://localhost:8000")
    opened.add_argument("--readers", type=int, default=100)
    opened.add_argument("--seconds", type=int, default=300)
    opened.add_argument("--rounds", type=int, default=20, help="of each page alone")
    opened.add_argument("--pid", type=int, help="of the web process, for its CPU")
    ingest = commands.add_parser("usage-ingest", help="pod events over HTTP to committed rows")
    ingest.add_argument("--pods", type=int, default=5_000, help="of four events each")
    ingest.add_argument("--bytes", type=int, default=3_000, help="size of an event")
    ingest.add_argument(
        "--stamps",
        choices=("none", "recorded", "waiting"),
        default="none",
        help="pods with the operator's stamp, of recorded jobs or of jobs not recorded yet",
    )
    ingest.add_argument("--rounds", type=int, default=5)
    reports = commands.add_parser("usage-reports", help="month reports beside COPY")
    reports.add_argument("--lifetimes", type=int, default=1_000_000, help="of the last 60 days")
    reports.add_argument("--rounds", type=int, default=5)
    reports.add_argument("--summaries-only", action="store_true")
    crowd = commands.add_parser("usage-downloads", help="the API while many download")
    crowd.add_argument("--lifetimes", type=int, default=1_000_000, help="of the last 60 days")
    crowd.add_argument("--clients", type=int, default=50)
    crowd.add_argument("--seconds", type=float, default=20, help="of each round")
    crowd.add_argument("--rounds", type=int, default=3)
    reads = commands.add_parser("proxy-reads", help="/stats and /query of a large fleet")
    reads.add_argument("--machines", type=int, default=1024, help="of four IPUs each")
    reads.add_argument("--partitions", type=int, default=2000)
    reads.add_argument("--rounds", type=int, default=31)
    reads.add_argument("--seconds", type=int, default=20, help="of readers at 50 a second")
    edits = commands.add_parser("controller-edits", help="the list of V-IPU controllers is edited")
    edits.add_argument("--rounds", type=int, default=20)
    lives = commands.add_parser(
        "vipu-cycles", help="partitions created and removed, again and again"
    )
    lives.add_argument("--cycles", type=int, default=50, help="of each of 8 clients")
    lives.add_argument("--rounds", type=int, default=5)
    lives.add_argument("--agents", type=int, default=0, help="machines behind agents; 0: none")
    lives.add_argument("--stored", type=int, default=10_000, help="partitions to start with")
    holes = commands.add_parser("fragmentation", help="best fit beside first fit")
    holes.add_argument("--machines", type=int, default=64, help="of four IPUs each")
    holes.add_argument("--steps", type=int, default=10_000)
    holes.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    # Imported by name: a benchmark needs neither the others' modules nor their time.
    done = import_module(f"tests.bench.{_MODULES[options.command]}").run(options)
    if asyncio.iscoroutine(done):
        asyncio.run(done)


if __name__ == "__main__":
    main()
