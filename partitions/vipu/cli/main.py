"""glue: `vipu`: partitions of a V-IPU controller for users, in the original's words."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from partitions.vipu.cli import commands
from partitions.vipu.cli.program import add_examples, add_frame, entities, run, shared_options
from partitions.vipu.cli.settings import USERS_PORT
from partitions.vipu.client import VipuClient
from partitions.vipu.types import IpuLinkRouting, SyncType

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES: Final = """examples:
  vipu create partition p1 --size 4
  vipu list partitions --output wide
  vipu get partition p1 --ipu-configs > ~/.ipuof.conf.d/p1.conf
  vipu remove partition p1
  VIPU_CLI_API_HOST=10.1.2.3 vipu list allocations --watch
"""
_GATEWAY: Final = ("undefined", "ring", "swring")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run(make_parser(), arguments, VipuClient, USERS_PORT)


def make_parser() -> argparse.ArgumentParser:
    """The commands and options."""
    shared = shared_options(USERS_PORT.default)
    parser = argparse.ArgumentParser(
        prog="vipu",
        description="Make and show partitions of IPUs on a V-IPU controller.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options(USERS_PORT.default)],
    )
    actions = add_frame(parser)
    _add_partitions(actions, shared)
    listing = entities(actions, "list", "list partitions, allocations or attributes of IPUs")
    _add_lists(listing, shared)
    add_examples(parser)
    return parser


def _add_partitions(actions: Any, shared: argparse.ArgumentParser) -> None:
    for action, command, about in (
        ("create", commands.create_partition, "make a partition and wait until it is ACTIVE"),
        ("get", commands.get_partition, "show one partition"),
        ("reset", commands.reset_partition, "bring a partition back to its first state"),
        ("remove", commands.remove_partition, "free the IPUs of a partition"),
        ("delete", commands.remove_partition, "the same as remove"),
    ):
        entity = entities(actions, action, about)
        parser = entity.add_parser("partition", help=about, parents=[shared])
        parser.add_argument("name", metavar="NAME", help="id of the partition")
        parser.set_defaults(command=command)
        _OPTIONS[action](parser)


def _create_options(parser: argparse.ArgumentParser) -> None:
    def number(text: str) -> int:
        value = int(text)
        if not 0 < value < 2**31:
            raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
        return value

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
    _moving(parser)


def _moving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--relocatable", action="store_true", help="may move to other IPUs")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is ACTIVE")


def _get_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gcd", type=int, metavar="N", help="only of this domain, with --ipu-configs"
    )
    parser.add_argument(
        "--ipu-configs",
        "--ipuof-configs",
        dest="ipu_configs",
        action="store_true",
        help="how its devices are reached, as JSON",
    )


def _remove_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="whatever fails on the way")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is gone")


_OPTIONS: Final = {
    "create": _create_options,
    "get": _get_options,
    "reset": _moving,
    "remove": _remove_options,
    "delete": _remove_options,
}


def _add_lists(listing: Any, shared: argparse.ArgumentParser) -> None:
    for names, command, about in (
        (("partitions", "partition"), commands.list_partitions, "all partitions"),
        (("allocations", "allocation"), commands.list_allocations, "allocations and their agents"),
        (("ipu-attrs", "ipu-attr"), commands.list_ipu_attributes, "attributes of each IPU"),
    ):
        parser = listing.add_parser(names[0], aliases=names[1:], help=about, parents=[shared])
        parser.set_defaults(command=command)
        if command is commands.list_partitions:
            parser.add_argument("--allocation", metavar="ID", help="only those of this allocation")
        if command is commands.list_ipu_attributes:
            parser.add_argument("--agent", action="append", metavar="ID", help="only of this agent")


if __name__ == "__main__":
    sys.exit(main())
