"""glue: common parts of the V-IPU commands: options, exit codes, output.

Exit codes: 0 done; 1 the controller refused, or a test of machines failed; 2 wrong options or
settings; 3 no answer; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from partitions.vipu.cli.completion import SHELLS, commands_of, completion
from partitions.vipu.cli.output import FORMATS, Done, Table, plain, write
from partitions.vipu.cli.settings import BadSetting, find_controller, home_folder
from partitions.vipu.errors import NoAnswer, Unavailable, VipuError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from partitions.vipu.cli.settings import PortSetting
    from partitions.vipu.client import VipuClient

DONE, REFUSED, WRONG, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 130
WATCH_SECONDS: Final = 2.0
_Value = TypeVar("_Value")


def run(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    connect: Callable[..., VipuClient],
    port: PortSetting,
) -> int:
    """Run a command line and return its exit code; `connect` takes an address and `tls`."""
    options = parser.parse_args(arguments)
    try:
        _require_text(options)
        return _answer(parser, options, connect, port)
    except BadSetting as error:
        code, message = WRONG, f"{parser.prog}: {error}"
    except NoAnswer as error:
        check = "Check --api-host, --api-port and the network, and --ca where it uses TLS"
        code, message = NO_ANSWER, f"{parser.prog}: {error}. {check}"
    except VipuError as error:
        code, message = REFUSED, f"{_title(options)}: failed: {error}"
    except KeyboardInterrupt:
        code, message = DONE if options.watch else INTERRUPTED, ""
    except BrokenPipeError:  # the reader of the pipe has closed it
        code, message = DONE, ""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if message:
        _say(plain(message), sys.stderr)
    return code


def _require_text(options: argparse.Namespace) -> None:
    """Raise BadSetting for an argument that no message can carry."""
    for name, value in vars(options).items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str) and not each.isascii():
                try:
                    each.encode()
                except UnicodeEncodeError:
                    raise BadSetting(f"{name.replace('_', '-')} is not UTF-8 text") from None


def _say(text: str, stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    target.write(f"{text}\n")
    target.flush()


def _answer(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    connect: Callable[..., VipuClient],
    port: PortSetting,
) -> int:
    if options.action == "completion":
        _say(completion(parser, options.shell))
        return DONE
    if options.command is None and not options.server_version:
        _say(parser.format_help().rstrip(), sys.stderr)
        return WRONG
    given = {key.replace("_", "-"): value for key, value in vars(options).items()}
    controller = find_controller(given, os.environ, home_folder(), port=port)
    client = connect(
        controller.address,
        tls=_fixed(controller.tls),
        credentials=_fixed(controller.credentials),
    )
    return asyncio.run(_run(client, options))


def _fixed(value: _Value | None) -> Callable[[], _Value] | None:
    return None if value is None else lambda: value


async def _run(client: VipuClient, options: argparse.Namespace) -> int:
    async with client:
        if options.server_version:
            _say(f"host: {client.address}\nversion: {plain(await client.version())}")
            return DONE
        while True:
            table = await _ask(client, options)
            form = "json" if options.showjson else options.output
            if table is None or isinstance(table, Done):
                _say(_success(table or Done(), options, form))
                return DONE
            form = form if table.heads else "json"
            _say(write(table, form))
            if not options.watch or table.is_last:
                return REFUSED if table.is_bad else DONE
            options.shown = table
            await asyncio.sleep(WATCH_SECONDS)


async def _ask(client: VipuClient, options: argparse.Namespace) -> Any:
    """Return the answer of the command. Raise VipuError.

    Once `--watch` has shown a list, it retries while the controller is unavailable.
    """
    problem = ""
    while True:
        try:
            return await options.command(client, options)
        except Unavailable as error:
            if options.shown is None:
                raise
            if not problem:
                problem = f"{error}. The list above may be out of date; trying again until Ctrl-C"
                _say(plain(problem), sys.stderr)
            await asyncio.sleep(WATCH_SECONDS)


def _success(done: Done, options: argparse.Namespace, form: str) -> str:
    """Return the sentence of a command that shows no list, or its facts for programs."""
    if form not in {"json", "yaml"}:
        return f"{_title(options)}: success." + (f" {done.text}" if done.text else "")
    command = {"action": options.action, "entity": options.entity}
    name = {"id": options.name} if getattr(options, "name", "") else {}
    return write(Table((), [], {**command, **name, "result": "success", **done.data}), form)


def _title(options: argparse.Namespace) -> str:
    name = getattr(options, "name", "")
    return f"{options.action} {options.entity}" + (f" ({name})" if name else "")


def add_frame(parser: argparse.ArgumentParser) -> Any:
    """Add what every command has, and return where its actions go.

    The options before and after a command write the same values; only the first have defaults.
    """
    parser.set_defaults(
        **dict.fromkeys(("api_host", "api_port", "api_user_id", "api_access_key")),
        **dict.fromkeys(("config", "ca", "certificate", "key")),
        command=None,
        action="",
        entity="",
        output="table",
        showjson=False,
        watch=False,
        shown=None,
        server_version=False,
    )
    text = f"{parser.prog} of IPUHub {version('ipuhub')}"
    parser.add_argument("--version", action="version", version=text)
    parser.add_argument(
        "--server-version", action="store_true", help="show address and version of the controller"
    )
    actions = parser.add_subparsers(dest="action", metavar="COMMAND")
    shell = actions.add_parser("completion", help="print a completion script")
    shell.add_argument("shell", choices=SHELLS)
    return actions


def shared_options(default_port: int) -> argparse.ArgumentParser:
    """The options of the controller and of the output."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = shared.add_argument_group("controller")
    group.add_argument("-H", "--api-host", metavar="HOST", help="host of the controller")
    group.add_argument("--api-port", metavar="PORT", help=f"its port (default {default_port})")
    for name, what in (
        ("user-id", "user of a controller with users; sent over TLS only"),
        ("access-key", "its key; better in a file or VIPU_CLI_API_ACCESS_KEY"),
    ):
        group.add_argument(f"--api-{name}", metavar="TEXT", help=what)
    group.add_argument("--config", metavar="FILE", help='file of lines like api-host="10.1.2.3"')
    group.add_argument("--ca", metavar="FILE", help="CA of the controller, PEM; switches TLS on")
    group.add_argument("--certificate", metavar="FILE", help="own certificate, PEM")
    group.add_argument("--key", metavar="FILE", help="its private key, PEM")
    output = shared.add_argument_group("output")
    output.add_argument(
        "-o", "--output", choices=FORMATS, help="form of the output (default table)"
    )
    output.add_argument("--showjson", action="store_true", help="the same as --output json")
    output.add_argument("--watch", action="store_true", help="show a list again every 2 s")
    return shared


def add_examples(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Let the help of each command show the examples that are about it.

    They are in the help of `parser`, or, one a line, in `more`.
    """
    shell = f"  source <({parser.prog} completion bash)"
    text = f"{parser.epilog or ''}{more}{shell}"
    lines = [line for line in text.splitlines() if parser.prog in line]
    for path, command in commands_of(parser):
        found = [line for line in lines if f"{parser.prog} {path} " in f"{line} "]
        if found:
            command.epilog = "\n".join(("examples:", *found))
            command.formatter_class = argparse.RawDescriptionHelpFormatter


def entities(actions: Any, action: str, about: str) -> Any:
    """Add an action that is about several things, and return where these go."""
    parser = actions.add_parser(action, help=about)
    return parser.add_subparsers(dest="entity", metavar="WHAT", required=True)
