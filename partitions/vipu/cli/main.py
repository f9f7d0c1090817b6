"""glue: `vipu`: partitions of a V-IPU controller for users, in the original's words.

Exit codes: 0 done; 1 the controller refused; 2 wrong options or settings; 3 no answer; 130
interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from partitions.vipu.cli import commands
from partitions.vipu.cli.completion import SHELLS, completion
from partitions.vipu.cli.output import FORMATS, plain, write
from partitions.vipu.cli.settings import BadSetting, find_controller
from partitions.vipu.client import VipuClient
from partitions.vipu.errors import Unavailable, VipuError
from partitions.vipu.types import IpuLinkRouting, SyncType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from partitions.vipu.client import TlsFiles

DONE, REFUSED, WRONG, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 130
WATCH_SECONDS: Final = 2.0
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
    options = make_parser().parse_args(arguments)
    try:
        return _answer(options)
    except BadSetting as error:
        code, said = WRONG, f"vipu: {error}"
    except Unavailable as error:
        code, said = NO_ANSWER, f"vipu: {error}. Check --api-host, --api-port and the network"
    except VipuError as error:
        code, said = REFUSED, f"{_title(options)}: failed: {error}"
    except KeyboardInterrupt:
        code, said = DONE if options.watch else INTERRUPTED, ""
    except BrokenPipeError:  # who reads has enough
        code, said = DONE, ""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if said:
        _say(plain(said), sys.stderr)
    return code


def _say(text: str, stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    target.write(f"{text}\n")
    target.flush()


def _answer(options: argparse.Namespace) -> int:
    if options.action == "completion":
        _say(completion(make_parser(), options.shell))
        return DONE
    if options.command is None and not options.server_version:
        _say(make_parser().format_help().rstrip(), sys.stderr)
        return WRONG
    given = {key.replace("_", "-"): value for key, value in vars(options).items()}
    controller = find_controller(given, os.environ, Path.home())
    return asyncio.run(_run(VipuClient(controller.address, tls=_fixed(controller.tls)), options))


def _fixed(tls: TlsFiles | None) -> Callable[[], TlsFiles] | None:
    return None if tls is None else lambda: tls


async def _run(client: VipuClient, options: argparse.Namespace) -> int:
    async with client:
        if options.server_version:
            _say(f"host: {client.address}\nversion: {plain(await client.version())}")
            return DONE
        while True:
            table = await options.command(client, options)
            if table is None:
                _say(f"{_title(options)}: success.")
                return DONE
            form = "json" if options.showjson or not table.heads else options.output
            _say(write(table, form))
            if not options.watch:
                return DONE
            await asyncio.sleep(WATCH_SECONDS)


def _title(options: argparse.Namespace) -> str:
    name = getattr(options, "name", "")
    return f"{options.action} {options.entity}" + (f" ({name})" if name else "")


def make_parser() -> argparse.ArgumentParser:
    """The commands and options."""
    shared = _shared()
    parser = argparse.ArgumentParser(
        prog="vipu",
        description="Make and show partitions of IPUs on a V-IPU controller.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_shared()],
    )
    # The options before and after a command write the same values; only the first have defaults.
    parser.set_defaults(
        **dict.fromkeys(("api_host", "api_port", "config", "ca", "certificate", "key")),
        command=None,
        action="",
        entity="",
        output="table",
        showjson=False,
        watch=False,
        server_version=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"vipu of IPUHub {version('ipuhub')}"
    )
    parser.add_argument(
        "--server-version", action="store_true", help="show address and version of the controller"
    )
    actions = parser.add_subparsers(dest="action", metavar="COMMAND")
    _add_partitions(actions, shared)
    listing = _entities(actions, "list", "list partitions, allocations or attributes of IPUs")
    _add_lists(listing, shared)
    shell = actions.add_parser("completion", help="print a completion script")
    shell.add_argument("shell", choices=SHELLS)
    return parser


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = shared.add_argument_group("controller")
    group.add_argument("-H", "--api-host", metavar="HOST", help="host of the controller")
    group.add_argument("--api-port", metavar="PORT", help="its port (default 8090)")
    for name in ("user-id", "access-key"):
        group.add_argument(
            f"--api-{name}", metavar="TEXT", help="accepted, not sent: the published API has none"
        )
    group.add_argument("--config", metavar="FILE", help='file of lines like api-host="10.1.2.3"')
    group.add_argument("--ca", metavar="FILE", help="CA of the controller, PEM; switches TLS on")
    group.add_argument("--certificate", metavar="FILE", help="own certificate, PEM")
    group.add_argument("--key", metavar="FILE", help="its private key, PEM")
    shown = shared.add_argument_group("output")
    shown.add_argument("-o", "--output", choices=FORMATS, help="form of lists (default table)")
    shown.add_argument("--showjson", action="store_true", help="the same as --output json")
    shown.add_argument("--watch", action="store_true", help="show a list again every 2 s")
    return shared


def _entities(actions: Any, action: str, about: str) -> Any:
    parser = actions.add_parser(action, help=about)
    return parser.add_subparsers(dest="entity", metavar="WHAT", required=True)


def _add_partitions(actions: Any, shared: argparse.ArgumentParser) -> None:
    for action, command, about in (
        ("create", commands.create_partition, "make a partition and wait until it is ACTIVE"),
        ("get", commands.get_partition, "show one partition"),
        ("reset", commands.reset_partition, "bring a partition back to its first state"),
        ("remove", commands.remove_partition, "free the IPUs of a partition"),
        ("delete", commands.remove_partition, "the same as remove"),
    ):
        entity = _entities(actions, action, about)
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
    syncs = [each.value.lower().replace("_", "-") for each in SyncType]
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
