"""glue: the command line of vipu-server."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How one vipu-server runs; port 0 takes any free one.

    `cluster` and `allocation` may list several, separated by commas: the first allocation is of
    the first cluster, and so on, each with `machines` machines.
    """

    storage: Path
    host: str = "127.0.0.1"
    port: int = 8090
    machines: int = 8
    ipus_per_machine: int = 4
    cluster: str = "default"
    allocation: str = "default"
    published_attributes_only: bool = False
    create_latency_seconds: float = 0.5
    reset_latency_seconds: float = 0.2
    log_level: str = "info"

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The clusters of the fleet, each with its allocation; raises ValueError."""
        clusters, allocations = self.cluster.split(","), self.allocation.split(",")
        if len(clusters) != len(allocations) or len(set(allocations)) != len(allocations):
            raise ValueError(
                f"--cluster {self.cluster} and --allocation {self.allocation}: "
                "name one cluster for each allocation, and each allocation once"
            )
        return list(zip(clusters, allocations, strict=True))


def parse_options(arguments: list[str] | None = None) -> ServerOptions:
    """Read the command line; ends the process with a usage text where it is wrong."""
    found = vars(_parser().parse_args(arguments))
    return ServerOptions(**found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vipu-server",
        description="A V-IPU controller over simulated IPU-Machines, on the user API's gRPC port.",
        epilog="Exit codes: 0 stopped; 1 cannot listen; 2 wrong options; 3 state file unusable.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _address_options(parser)
    _fleet_options(parser)
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least severe log line shown",
    )
    return parser


def _address_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=8090, help="port; 0: any free one")
    parser.add_argument(
        "--storage",
        type=Path,
        default=Path("vipu-server.json"),
        help="file that keeps the partitions",
    )


def _fleet_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machines", type=int, default=8, help="number of IPU-Machines of each allocation"
    )
    parser.add_argument("--ipus-per-machine", type=int, default=4, help="IPUs of each")
    parser.add_argument(
        "--cluster", default="default", help="id of each allocation's cluster, separated by commas"
    )
    parser.add_argument(
        "--allocation", default="default", help="ids of the allocations, separated by commas"
    )
    parser.add_argument(
        "--published-attributes-only",
        action="store_true",
        help="say of IPUs only what other V-IPU controllers say: not their place, cluster and "
        "allocation",
    )
    for what, seconds in (("create", 0.5), ("reset", 0.2)):
        parser.add_argument(
            f"--{what}-latency-seconds",
            type=_seconds,
            default=seconds,
            help=f"how long it takes to {what} a partition",
        )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is no port (0 to 65535)")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds (0 to 86400)")
    return seconds
