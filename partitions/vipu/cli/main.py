"""glue: `vipu`: partitions of a V-IPU controller for users, in the original's words."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from partitions.vipu.cli import commands, partitionoptions
from partitions.vipu.cli.program import add_examples, add_frame, entities, run, shared_options
from partitions.vipu.cli.settings import USERS_PORT
from partitions.vipu.client import VipuClient

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES: Final = """examples:
  vipu create partition p1 --size 4
  vipu list partitions --output wide
  vipu get partition p1 --ipu-configs > ~/.ipuof.conf.d/p1.conf
  vipu list ipu-attrs --agent ag0
  vipu reset partition p1
  vipu remove partition p1
  VIPU_CLI_API_HOST=10.1.2.3 vipu list allocations --watch
"""
_MORE: Final = """
  vipu delete partition p1
"""


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
    add_examples(parser, _MORE)
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


_OPTIONS: Final = {
    "create": partitionoptions.create,
    "get": partitionoptions.get,
    "reset": partitionoptions.moving,
    "remove": partitionoptions.remove,
    "delete": partitionoptions.remove,
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
            parser.add_argument(
                "--allocation", metavar="ID", help="only partitions of this allocation"
            )
        if command is commands.list_ipu_attributes:
            parser.add_argument("--agent", action="append", metavar="ID", help="only of this agent")


if __name__ == "__main__":
    sys.exit(main())
