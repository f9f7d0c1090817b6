"""glue: `vipu-admin`: machines, cordons and all partitions of a V-IPU controller."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from partitions.vipu.agent.machine import MachineTest
from partitions.vipu.cli import admincommands as commands
from partitions.vipu.cli import commands as partitions
from partitions.vipu.cli import diagnosticcommands as diagnostics
from partitions.vipu.cli import fleetcommands as fleet
from partitions.vipu.cli import partitionoptions
from partitions.vipu.cli import usercommands as users
from partitions.vipu.cli.draincommand import drain_agent
from partitions.vipu.cli.partitionoptions import index, number, seconds
from partitions.vipu.cli.program import add_examples, add_frame, entities, run, shared_options
from partitions.vipu.cli.settings import ADMIN_PORT
from partitions.vipu.client import AdminClient

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES: Final = """examples:
  vipu-admin list agents
  vipu-admin cordon agent ag3 --reason "new cables on Monday"
  vipu-admin drain agent ag3 --reason "new cables on Monday" --timeout 3600
  vipu-admin list partitions --agent ag3
  vipu-admin create partition p1 --size 4 --cluster c1
  vipu-admin get partition p1
  vipu-admin remove partition p1 --force
  vipu-admin get partition p1 --gcd 0 --ipuof-configs > ipuof.conf
  vipu-admin uncordon agent ag3
  vipu-admin provoke fault ag3 --ipu 2
  vipu-admin discover agents
  vipu-admin create agent ag4 --host 10.1.2.5
  vipu-admin get agent ag3 --output json
  vipu-admin create cluster c1 --agents ag0,ag1,ag2,ag3 --topology mesh
  vipu-admin create allocation team-a --cluster c1 --agents ag0,ag1
  vipu-admin diagnostics ipu-self-test --agents ag3
  vipu-admin create user alice --allocations team-a
  VIPU_CLI_API_HOST=10.1.2.3 vipu-admin list events --watch
"""
# In the help of the command alone.
_MORE: Final = """
  vipu-admin list clusters --output wide
  vipu-admin list allocations --output wide
  vipu-admin list users --output wide
  vipu-admin get cluster c1
  vipu-admin get allocation team-a
  vipu-admin get server
  vipu-admin remove agent ag4
  vipu-admin remove cluster c1
  vipu-admin remove allocation team-a
  vipu-admin remove user alice
  vipu-admin rotate-key user alice
  vipu-admin grant user alice --allocations team-a,team-b
  vipu-admin revoke user alice --allocations team-b
  vipu-admin reset partition p1 --relocatable
  vipu-admin clear fault ag3 --ipu 2
  vipu-admin diagnostics connectivity --agents ag3,ag4
  vipu-admin diagnostics sync --no-wait
  vipu-admin diagnostics list
  vipu-admin diagnostics get d7 --watch
  vipu-admin diagnostics cancel d7
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
    _add_entities(actions, shared)
    _add_diagnostics(actions, shared)
    add_examples(parser, _MORE)
    return parser


def _add_diagnostics(actions: Any, shared: argparse.ArgumentParser) -> None:
    tests = entities(actions, "diagnostics", "test machines")
    for kind, about in (
        (MachineTest.CONNECTIVITY, "test that agents answer and IPU-Links are up"),
        (MachineTest.IPU_SELF_TEST, "let each IPU test itself; skips IPUs of partitions"),
        (MachineTest.SYNC, "test the sync lines of machines; skips those with partitions"),
    ):
        parser = tests.add_parser(kind.value, help=about, parents=[shared])
        _agents(parser, "all")
        parser.add_argument("--no-wait", action="store_true", help="do not wait for its end")
        parser.set_defaults(command=diagnostics.run_test)
    listing = tests.add_parser("list", help="the last 20 tests", parents=[shared])
    listing.set_defaults(command=diagnostics.list_tests)
    about = "show the results of a test"
    _named(tests, "get", diagnostics.get_test, about, shared)
    _named(tests, "cancel", diagnostics.cancel_test, "end a test", shared)


def _add_users(actions: Any, create: Any, remove: Any, shared: argparse.ArgumentParser) -> None:
    about = "let a user use allocations; prints an access key and writes it to a file"
    _allocations(_named(create, "user", users.create_user, about, shared), "none")
    _named(remove, "user", users.remove_user, "remove a user; partitions stay", shared)
    about = "make a new access key; the old key ends"
    rotate = entities(actions, "rotate-key", about)
    _named(rotate, "user", users.rotate_key, about, shared)
    for action, command, about in (
        ("grant", users.grant, "let a user see and use allocations"),
        ("revoke", users.revoke, "take allocations from a user"),
    ):
        _allocations(_named(entities(actions, action, about), "user", command, about, shared))


def _allocations(parser: argparse.ArgumentParser, usual: str = "") -> None:
    more = f" (default: {usual})" if usual else ""
    parser.add_argument(
        "--allocations",
        type=_names,
        default=[],
        required=not usual,
        metavar="ID,ID,...",
        help=f"ids of allocations, separated by commas{more}",
    )


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _add_arrangement(actions: Any, remove: Any, get: Any, shared: argparse.ArgumentParser) -> Any:
    """Agents, clusters and allocations; returns where what can be created goes."""
    create = entities(actions, "create", "create an agent, a cluster, a partition and more")
    about = "connect a running vipu-agent; its machine is in no cluster yet"
    agent = _named(create, "agent", fleet.create_agent, about, shared)
    agent.add_argument("--host", required=True, metavar="HOST", help="name or address of the agent")
    agent.add_argument(
        "--port", type=number, default=8080, metavar="N", help="its port (default 8080)"
    )
    finding = entities(actions, "discover", "find agents that have announced themselves")
    about = "agents that have announced themselves in the last minute"
    heard = finding.add_parser("agents", aliases=["agent"], help=about, parents=[shared])
    heard.set_defaults(command=fleet.discover_agents)
    about = "forget a created agent; refused while it is in a cluster"
    _named(remove, "agent", fleet.remove_agent, about, shared)
    about = "make a partition and wait until it is ACTIVE"
    partition = _named(create, "partition", partitions.create_partition, about, shared)
    partitionoptions.create(partition)
    about = "put agents that are in no cluster into a new cluster, in the order of their cabling"
    cluster = _named(create, "cluster", fleet.create_cluster, about, shared)
    _agents(cluster)
    cluster.add_argument(
        "--topology", choices=fleet.TOPOLOGIES, default="torus", help="cabling of the IPU-Links"
    )
    cluster.add_argument(
        "--num-ipulinkdomains",
        type=number,
        default=0,
        metavar="N",
        help="IPU-Link domains, among which the agents are divided evenly (default: as few as "
        "hold them, 64 IPUs in each)",
    )
    cluster.add_argument(
        "--cluster-topology",
        choices=("line", "looped"),
        default="line",
        help="between domains; stored and shown, as a partition never spans domains",
    )
    about = "let users have partitions of agents of a cluster"
    allocation = _named(create, "allocation", fleet.create_allocation, about, shared)
    allocation.add_argument("--cluster", required=True, metavar="ID", help="the cluster")
    _agents(allocation, "all of the cluster that are in no allocation")
    about = "remove a cluster; refused while it has allocations"
    _named(remove, "cluster", fleet.remove_cluster, about, shared)
    about = "remove an allocation; refused while it has partitions"
    _named(remove, "allocation", fleet.remove_allocation, about, shared)
    _named(get, "cluster", fleet.get_cluster, "one cluster", shared)
    _named(get, "allocation", fleet.get_allocation, "one allocation", shared)
    return create


def _agents(parser: argparse.ArgumentParser, usual: str = "") -> None:
    more = f" (default: {usual})" if usual else ""
    parser.add_argument(
        "--agents",
        type=_names,
        default=[],
        required=not usual,
        metavar="ID,ID,...",
        help=f"ids of agents, separated by commas{more}",
    )


def _add_lists(actions: Any, shared: argparse.ArgumentParser) -> None:
    listing = entities(actions, "list", "list agents, partitions, users and more")
    for names, command, about in (
        (("agents", "agent"), commands.list_agents, "all agents, with what is wrong"),
        (("clusters", "cluster"), fleet.list_clusters, "clusters and their agents"),
        (("allocations", "allocation"), fleet.list_allocations, "allocations and their agents"),
        (("partitions", "partition"), commands.list_partitions, "everybody's partitions"),
        (("users", "user"), users.list_users, "users and their allocations"),
        (("events", "event"), commands.list_events, "the last changes since the start"),
    ):
        parser = listing.add_parser(names[0], aliases=names[1:], help=about, parents=[shared])
        parser.set_defaults(command=command)
        if command is commands.list_partitions:
            parser.add_argument("--agent", metavar="ID", help="only partitions on this machine")
            parser.add_argument("--cluster", metavar="ID", help="only partitions of this cluster")
            parser.add_argument(
                "--allocation", metavar="ID", help="only partitions of this allocation"
            )


def _add_entities(actions: Any, shared: argparse.ArgumentParser) -> None:
    get = entities(actions, "get", "show an agent, a partition, a cluster and more")
    remove = entities(actions, "remove", "remove a partition, an agent, a cluster and more")
    create = _add_arrangement(actions, remove, get, shared)
    _add_users(actions, create, remove, shared)
    about = "one partition, with its errors"
    partitionoptions.get(_named(get, "partition", commands.get_partition, about, shared))
    about = "one agent: its faults, what its machine is made of, its IPUs"
    _named(get, "agent", commands.get_agent, about, shared)
    server = get.add_parser("server", help="version, age and size", parents=[shared])
    server.set_defaults(command=commands.get_server)
    cordon = entities(actions, "cordon", "keep new partitions from a machine")
    about = "keep new partitions from an agent's machine; those that are there stay"
    parser = _named(cordon, "agent", commands.cordon_agent, about, shared)
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        help="shown to users who wait for IPUs (default: the present cordon's)",
    )
    uncordon = entities(actions, "uncordon", "let a machine have new partitions again")
    about = "let an agent's machine have new partitions again"
    _named(uncordon, "agent", commands.uncordon_agent, about, shared)
    _add_drain(actions, shared)
    about = "free the IPUs of any partition"
    parser = _named(remove, "partition", commands.remove_partition, about, shared)
    partitionoptions.remove(parser)
    about = "bring a partition back to its first state"
    reset = entities(actions, "reset", about)
    parser = _named(reset, "partition", commands.reset_partition, about, shared)
    partitionoptions.moving(parser)
    for action, command, about in (
        ("provoke", commands.provoke_fault, "let a simulated machine fail: rehearse a fault"),
        ("clear", commands.clear_fault, "end a provoked fault"),
    ):
        parser = _named(entities(actions, action, about), "fault", command, about, shared)
        parser.add_argument(
            "--ipu", type=index, metavar="N", help="only this IPU (default: the whole machine)"
        )
        if action == "provoke":
            parser.add_argument(
                "--ipuof-port", action="store_true", help="only close the IPUoF port of the IPU"
            )


def _add_drain(actions: Any, shared: argparse.ArgumentParser) -> None:
    drain = entities(actions, "drain", "empty a machine before work on it")
    about = "cordon an agent's machine, move what is relocatable, wait for the other partitions"
    parser = _named(drain, "agent", drain_agent, about, shared)
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        help="shown to users who wait for IPUs (default: the present cordon's)",
    )
    parser.add_argument(
        "--force", action="store_true", help="end partitions that cannot move, jobs' among them"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="give up after this long, with exit code 1 (default 0: wait without limit)",
    )
    parser.add_argument("--no-wait", action="store_true", help="exit code 1 if any remain now")


def _named(
    entity: Any, name: str, command: object, about: str, shared: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = entity.add_parser(name, help=about, parents=[shared])
    what = {"get": "test", "cancel": "test", "fault": "agent"}.get(name, name)
    parser.add_argument("name", metavar="ID", help=f"id of the {what}")
    parser.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
