"""glue: `vipu-admin`: machines, cordons and everybody's partitions of a V-IPU controller."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from partitions.vipu.cli import admincommands as commands
from partitions.vipu.cli.program import add_frame, entities, run, shared_options
from partitions.vipu.cli.settings import ADMIN_PORT
from partitions.vipu.client import AdminClient

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES: Final = """examples:
  vipu-admin list agents
  vipu-admin cordon agent ag3 --reason "new cables on Monday"
  vipu-admin list partitions --agent ag3
  vipu-admin uncordon agent ag3
  vipu-admin provoke fault ag3 --ipu 2
  VIPU_CLI_API_HOST=10.1.2.3 vipu-admin list events --watch
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run(make_parser(), arguments, AdminClient, ADMIN_PORT)


def make_parser() -> argparse.ArgumentParser:
    """The commands and options."""
    shared = shared_options(ADMIN_PORT.default)
    parser = argparse.ArgumentParser(
        prog="vipu-admin",
        description="Look after the IPU-Machines of a V-IPU controller of IPUHub.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options(ADMIN_PORT.default)],
    )
    actions = add_frame(parser)
    _add_lists(actions, shared)
    _add_things(actions, shared)
    return parser


def _add_lists(actions: Any, shared: argparse.ArgumentParser) -> None:
    listing = entities(actions, "list", "list agents, clusters, allocations, partitions or events")
    for names, command, about in (
        (("agents", "agent"), commands.list_agents, "all agents, with what is wrong"),
        (("clusters", "cluster"), commands.list_clusters, "clusters and their agents"),
        (("allocations", "allocation"), commands.list_allocations, "allocations and their agents"),
        (("partitions", "partition"), commands.list_partitions, "everybody's partitions"),
        (("events", "event"), commands.list_events, "the last changes since the start"),
    ):
        parser = listing.add_parser(names[0], aliases=names[1:], help=about, parents=[shared])
        parser.set_defaults(command=command)
        if command is commands.list_partitions:
            parser.add_argument("--agent", metavar="ID", help="only those on this machine")


def _add_things(actions: Any, shared: argparse.ArgumentParser) -> None:
    get = entities(actions, "get", "show an agent or the server")
    _named(get, "agent", commands.get_agent, "one agent, with its faults", shared)
    server = get.add_parser("server", help="version, age and size", parents=[shared])
    server.set_defaults(command=commands.get_server)
    cordon = entities(actions, "cordon", "keep new partitions from a machine")
    about = "keep new partitions from an agent's machine; those that are there stay"
    parser = _named(cordon, "agent", commands.cordon_agent, about, shared)
    parser.add_argument("--reason", default="", metavar="TEXT", help="for those who wait for IPUs")
    uncordon = entities(actions, "uncordon", "let a machine have new partitions again")
    about = "let an agent's machine have new partitions again"
    _named(uncordon, "agent", commands.uncordon_agent, about, shared)
    for action, command, about in (
        ("reset", commands.reset_partition, "bring a partition back to its first state"),
        ("remove", commands.remove_partition, "free the IPUs of a partition, whoever made it"),
    ):
        _named(entities(actions, action, about), "partition", command, about, shared)
    for action, command, about in (
        ("provoke", commands.provoke_fault, "let a simulated machine fail: rehearse a fault"),
        ("clear", commands.clear_fault, "end a provoked fault"),
    ):
        parser = _named(entities(actions, action, about), "fault", command, about, shared)
        parser.add_argument(
            "--ipu", type=int, metavar="N", help="only this IPU (default: the whole machine)"
        )


def _named(
    entity: Any, name: str, command: object, about: str, shared: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = entity.add_parser(name, help=about, parents=[shared])
    what = "partition" if name == "partition" else "agent"
    parser.add_argument("name", metavar="ID", help=f"id of the {what}")
    parser.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
