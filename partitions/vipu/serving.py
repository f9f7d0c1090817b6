"""io: common parts of all V-IPU servers: options, the port, TLS, and the standard gRPC services."""

from __future__ import annotations

import argparse
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ipuhub.addresses import address_of, one_host
from partitions.vipu.certificates import CA, CERTIFICATE, KEY
from partitions.vipu.tlsfiles import ServerTls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import grpc
    from grpc import aio

    from partitions.vipu.certificates import Role


# The name under which the health service of a controller says whether its state file is written. It
# still answers lists when it is not, so that as a whole it is SERVING.
STATE_FILE: Final = "state-file"


class ListenError(Exception):
    """The address cannot be listened on; the sentence says why."""


class OptionParser(argparse.ArgumentParser):
    """A parser whose errors name the variable of the environment that they are about, and whose
    help ends with `examples`, a command line each."""

    source = ""

    def __init__(self, *, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(**more)
        self.examples = examples

    def format_help(self) -> str:
        """Return the help, with the examples as they are written."""
        lines = "".join(f"  {line}\n" for line in self.examples)
        return super().format_help() + (f"\nexamples:\n{lines}" if lines else "")

    def error(self, message: str) -> NoReturn:
        """End the process with a usage text."""
        super().error(f"{self.source}{message}")

    def read(
        self, prefix: str, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> argparse.Namespace:
        """Read the command line, and before it the environment; end the process where an option is
        wrong."""
        given: list[str] = []
        for action in self._actions:
            name = f"{prefix}{action.dest.upper()}"
            if action.dest == "help" or name not in environ:
                continue
            words = _words(action, environ[name])
            self.source = f"{name}: "  # one option at a time, to say which is wrong
            self.parse_args(words)
            given += words
        self.source = ""
        return self.parse_args([*given, *arguments])


def _words(action: argparse.Action, text: str) -> list[str]:
    """The command line that says what a variable of the environment does."""
    flag = action.option_strings[0]
    if action.nargs != 0:
        return [flag, text]
    return [] if text.strip().lower() in {"", "0", "off", "false", "no"} else [flag]


def port_number(text: str) -> int:
    """An option's port; 0 stands for any free port."""
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is not a port (0 to 65535)")
    return port


def seconds(text: str) -> float:
    """An option's duration, at most a day."""
    duration = float(text)
    if not 0 <= duration <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds (0 to 86400)")
    return duration


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    """Add the files of the port's TLS."""
    for name, what in (
        ("--tls-certificate", "file with the certificate of the port, PEM; none: no TLS"),
        ("--tls-key", "file with its private key, PEM"),
        ("--client-ca", "file with the CA of clients, PEM; clients then need a certificate"),
    ):
        parser.add_argument(name, type=Path, help=what)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add level and format of the log."""
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="lowest level of log lines that are written",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=os.environ.get("IPUHUB_LOG_FORMAT", "text"),
        help="format of log lines; also IPUHUB_LOG_FORMAT",
    )


def server_tls(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> ServerTls | None:
    """TLS of a port, if it has any; raises ValueError."""
    if not (certificate and key):
        if certificate or key or client_ca:
            raise ValueError("TLS needs --tls-certificate and --tls-key")
        return None
    return ServerTls(certificate, key, client_ca)


def add_secure_options(parser: argparse.ArgumentParser) -> None:
    """Add the secure mode and where its files are."""
    parser.add_argument(
        "--secure",
        action="store_true",
        help="answer only clients with a certificate of the right role; see --tls-dir",
    )
    parser.add_argument(
        "--tls-dir",
        type=Path,
        metavar="DIR",
        help="folder of vipu-server --tls-init; the files of this role in it are used where "
        "--tls-certificate, --tls-key and --client-ca do not name others",
    )


def secure_tls(
    role: Role, folder: Path | None, files: tuple[Path | None, Path | None, Path | None]
) -> ServerTls:
    """TLS of a port in the secure mode: from `files` (certificate, key, CA of the clients), or
    from the folder of the role; raises ValueError."""
    defaults = [folder / role / name if folder else None for name in (CERTIFICATE, KEY, CA)]
    certificate, key, ca = (given or usual for given, usual in zip(files, defaults, strict=True))
    if not (certificate and key and ca):
        raise ValueError(
            "--secure needs certificates: give --tls-dir (vipu-server --tls-init DIR makes them), "
            "or --tls-certificate, --tls-key and --client-ca"
        )
    return ServerTls(certificate, key, ca)


class _Port(Protocol):
    """The common method of gRPC's threaded and asyncio servers."""

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int: ...

    def add_insecure_port(self, address: str) -> int: ...


def listen(server: _Port, host: str, port: int, credentials: grpc.ServerCredentials | None) -> int:
    """Listen on the address and return the port; raises ListenError."""
    host = one_host(host)
    # Asked of the operating system first: gRPC keeps the reason to itself and a raw line to stderr.
    reason = bind_problem(host, port)
    if not reason:
        try:
            if credentials is not None:
                return server.add_secure_port(address_of(host, port), credentials)
            return server.add_insecure_port(address_of(host, port))
        except RuntimeError:
            reason = bind_problem(host, port) or "gRPC refused it"
    raise ListenError(
        f"cannot listen on {address_of(host, port)}: {reason}; "
        + remedy(reason, "choose another --port or --host, or stop what uses it")
    )


def remedy(problem: str, usual: str) -> str:
    """Return the remedy for a problem of the operating system: for most problems, the usual
    remedy."""
    if problem == os.strerror(errno.EMFILE):
        return "let this process open more files: raise its hard limit (ulimit -n)"
    return usual


def bind_problem(host: str, port: int) -> str:
    """Return why the operating system refuses the address; empty when it does not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC does, so that connections of a server just stopped do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def add_standard_services(
    server: grpc.Server | aio.Server, names: Iterable[str]
) -> health.HealthServicer:
    """Add health, SERVING for the server and each service, and reflection; returns the first."""
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", *names):
        servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    every = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(every, server)
    return servicer


def say_health(servicer: health.HealthServicer, name: str, *, is_well: bool) -> None:
    """Let a health service say SERVING or NOT_SERVING of one name."""
    status = health_pb2.HealthCheckResponse
    servicer.set(name, status.SERVING if is_well else status.NOT_SERVING)
