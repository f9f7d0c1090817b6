"""io: the fork server: starts the demo's Python processes from one that has their libraries.

The demo runs a dozen processes of one code base on one machine. Alone, each spends most of a
second of CPU on imports; this process imports once. In production each process has its own
container, and this module is not used.

A forked process behaves like an executed one: it is a child of the demo with its own session,
command line, environment and output, and runs its script or module as `__main__`. The server
imports nothing that depends on the environment: each fork imports settings, Django's applications
and models, pages, the Celery app and metrics for itself. The server holds nothing that processes
must not share: no thread, event loop, gRPC channel or database connection. If it ends, the forks
go on.

Requests arrive on standard input, a socket: command and environment, with the descriptor of the
output. The answer is the process id. The process begins when the demo answers `BEGIN`: it is
watched now.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devcluster.demo.kinship import end_with_parent, show_command, take_environment

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST: Final = (
    "aiohttp.web",
    "cryptography.hazmat.primitives.serialization",
    "cryptography.x509",
    "django.core.management",
    "msgspec",
    "orjson",
    "prometheus_client",
    "structlog",
    "uvloop",
    "yaml",
)
"""The embedded Kubernetes API needs these, and all other processes wait for it."""
REST: Final = (
    "celery.apps.beat",
    "celery.bin.celery",
    "celery.worker.worker",
    "django.contrib.auth.hashers",
    "django.contrib.auth.password_validation",
    "django.contrib.postgres.fields",
    "django.db.backends.postgresql.base",
    "django.db.migrations",
    "django.forms",
    "django.template.defaulttags",
    "django.views.generic",
    "google.protobuf.json_format",
    "grpc.aio",
    "ipuhub.composition",
    "partitions.vipu.client",
    "psycopg_pool",
)
MOST_BYTES: Final = 128 * 1024
"""The length of the longest request."""
BEGIN: Final = b"begin"
GIVE_UP: Final = b"give up"


def main() -> None:
    """Serve until the demo ends; in a forked process, run its command."""
    show_command(sys.orig_argv[:3])  # without the room behind it
    connection = socket.socket(fileno=os.dup(0))
    _redirect(os.open(os.devnull, os.O_RDWR), 0)
    # rich is a development tool's; see ipuhub.commandline.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    gc.disable()  # a collection before the fork leaves holes, one after it copies pages
    preload(FIRST)
    demo = os.getppid()
    command = _fork_next(connection, demo)
    if command is None:
        preload(REST)
    while command is None:
        command = _fork_next(connection, demo)
    connection.close()
    gc.enable()
    _run(command)


def preload(modules: Iterable[str]) -> None:
    """Import these modules, and keep the garbage collector of each fork away from them."""
    for module in modules:
        import_module(module)
    gc.freeze()


def _fork_next(connection: socket.socket, demo: int) -> list[str] | None:
    """Fork a process for the next request. Return its command there, and None here.

    A process in between forks it and exits, so that the demo becomes its parent. It begins once
    the demo watches it: until then nothing of its command has run. Exit if the demo has ended.
    """
    request, outputs, _, _ = socket.recv_fds(connection, MOST_BYTES, 1)
    if not request:
        sys.exit()
    ours, its = socket.socketpair()
    with ours, its:
        between = os.fork()
        if between == 0:
            if os.fork() != 0:
                os._exit(0)
            ours.close()
            os.setsid()
            its.send(str(os.getpid()).encode())
            if not its.recv(1):
                os._exit(1)
            return _become(request, outputs[0], demo)
        its.close()
        os.close(outputs[0])
        os.waitpid(between, 0)
        with contextlib.suppress(ConnectionError):  # the demo or the fork has ended
            connection.send(ours.recv(32))
            if connection.recv(32) == BEGIN:
                ours.send(b"\n")
    return None


def _become(request: bytes, output: int, demo: int) -> list[str]:
    """Take the environment and the output of the request; return its command."""
    command, environment = json.loads(request)
    end_with_parent()
    if os.getppid() != demo:  # it ended before the kernel was asked
        os._exit(1)
    os.dup2(output, 1)
    _redirect(output, 2)
    show_command(command)
    take_environment(environment)
    return list(command)


def _redirect(source: int, number: int) -> None:
    os.dup2(source, number)
    os.close(source)


def _run(command: list[str]) -> None:
    """Run `python SCRIPT ...` or `python -m MODULE ...` as the interpreter does."""
    sys.orig_argv = command
    _, first, *arguments = command
    if first == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *arguments]
        sys.path[0] = str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main()
