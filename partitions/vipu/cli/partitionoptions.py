"""glue: the options of the commands about one partition, for `vipu` and `vipu-admin`."""

from __future__ import annotations

import argparse
from typing import Final

from partitions.vipu.cli import commands
from partitions.vipu.types import IpuLinkRouting, SyncType

_GATEWAY: Final = ("undefined", "ring", "swring")


def number(text: str) -> int:
    """A number of at least 1."""
    value = int(text)
    if not 0 < value < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return value


def index(text: str) -> int:
    """A number of at least 0, as GCDs and IPUs are counted."""
    value = int(text)
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return value


def seconds(text: str) -> float:
    """A duration of at least 0."""
    value = float(text)
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def create(parser: argparse.ArgumentParser) -> None:
    """Of `create partition`."""
    parser.add_argument("--size", type=number, required=True, metavar="N", help="number of IPUs")
    parser.add_argument("--allocation", metavar="ID", help="where to take the IPUs (default: any)")
    parser.add_argument("--cluster", metavar="ID", help="the same, by cluster")
    parser.add_argument("--reconfigurable", action="store_true", help="single devices, too")
    for name, what in (
        ("num-gcds", "graph compilation domains (default 1)"),
        ("gcd-sync-replicas", "replicas of all domains together (default: as many as domains)"),
        ("num-ipulink-segments", "IPU-Link segments (default 1)"),
    ):
        parser.add_argument(f"--{name}", type=number, default=0, metavar="N", help=what)
    routing = [each.value.lower() for each in IpuLinkRouting]
    parser.add_argument("--routing", choices=routing, default=routing[0], help="IPU-Link routing")
    parser.add_argument("--gw-routing", choices=_GATEWAY, default=_GATEWAY[0], help="of gateways")
    parser.add_argument(
        "--index", action="store_true", help="with --reconfigurable: whatever --sync-type says"
    )
    syncs = [*(each.value.lower().replace("_", "-") for each in SyncType), commands.C2_COMPATIBLE]
    parser.add_argument("--sync-type", choices=syncs, default=syncs[0], help="how GCDs synchronise")
    parser.add_argument("--disable-auto-reset", action="store_true", help="stay in ERROR")
    moving(parser)


def relocatable(parser: argparse.ArgumentParser) -> None:
    """Of whatever may move a partition."""
    about = "may move to other IPUs if its own cannot be used"
    parser.add_argument("--relocatable", action="store_true", help=about)


def moving(parser: argparse.ArgumentParser) -> None:
    """Of `reset partition`, and of other commands that may move a partition and wait for it."""
    relocatable(parser)
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is ACTIVE")


def get(parser: argparse.ArgumentParser) -> None:
    """Of `get partition`."""
    parser.add_argument(
        "--gcd", type=index, metavar="N", help="how the devices of this domain are reached, as JSON"
    )
    parser.add_argument(
        "--ipu-configs",
        "--ipuof-configs",
        dest="ipu_configs",
        action="store_true",
        help="how its devices are reached, as JSON; of all domains without --gcd",
    )


def remove(parser: argparse.ArgumentParser) -> None:
    """Of `remove partition`."""
    parser.add_argument("--force", action="store_true", help="whatever fails on the way")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is gone")
