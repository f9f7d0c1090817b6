"""glue: the vipu-server command: options, signals, exit codes.

A vipu-server is a state file, a controller and a gRPC port, started and stopped together.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ipuhub.process import logs
from partitions.vipu.protos import vipu_user_pb2, vipu_version_pb2
from partitions.vipu.protos.vipu_user_pb2_grpc import add_UserServiceServicer_to_server
from partitions.vipu.protos.vipu_version_pb2_grpc import add_VersionServiceServicer_to_server
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.service import UserService, VersionService
from partitions.vipu.server.statefile import StateFile, StateFileError
from partitions.vipu.tlsfiles import ServerTls, TlsFilesError
from partitions.vipu.topology import fleet_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ENVIRONMENT: Final = "IPUHUB_SIMULATED_VIPU_"
"""Not VIPU_SERVER_: Kubernetes sets VIPU_SERVER_PORT beside a Service named vipu-server."""


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
    log_format: str = "text"
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None

    @property
    def tls(self) -> ServerTls | None:
        """TLS of the port, if it has any; raises ValueError."""
        if not (self.tls_certificate and self.tls_key):
            if self.tls_certificate or self.tls_key or self.client_ca:
                raise ValueError("TLS needs --tls-certificate and --tls-key")
            return None
        return ServerTls(self.tls_certificate, self.tls_key, self.client_ca)

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


def parse_options(
    arguments: list[str] | None = None, environ: Mapping[str, str] = os.environ
) -> ServerOptions:
    """Read the command line, and before it the environment; ends the process with a usage text
    where one is wrong."""
    parser = _parser()
    given: list[str] = []
    for option in fields(ServerOptions):
        name = f"{_ENVIRONMENT}{option.name.upper()}"
        words = _words(option.name, environ[name]) if name in environ else []
        parser.source = f"{name}: "  # one at a time, to say which is wrong
        parser.parse_args(words)
        given += words
    parser.source = ""
    command_line = sys.argv[1:] if arguments is None else arguments
    return ServerOptions(**vars(parser.parse_args([*given, *command_line])))


def _words(option: str, text: str) -> list[str]:
    """The command line that says what a variable of the environment does."""
    flag = "--" + option.replace("_", "-")
    if option != "published_attributes_only":
        return [flag, text]
    return [] if text.strip().lower() in {"", "0", "off", "false", "no"} else [flag]


class _Parser(argparse.ArgumentParser):
    source = ""

    def error(self, message: str) -> NoReturn:
        super().error(f"{self.source}{message}")


def _parser() -> _Parser:
    parser = _Parser(
        prog="vipu-server",
        description="A simulated V-IPU controller that serves the gRPC user API for simulated "
        "IPU-Machines.",
        epilog="Each option can also be given as a variable of the environment: "
        f"{_ENVIRONMENT}PORT for --port. "
        "Exit codes: 0 stopped; 1 cannot listen; 2 wrong options; 3 state file unusable.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _address_options(parser)
    _fleet_options(parser)
    _tls_options(parser)
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
    return parser


def _tls_options(parser: argparse.ArgumentParser) -> None:
    for name, what in (
        ("--tls-certificate", "file with the certificate of the port, PEM; none: no TLS"),
        ("--tls-key", "file with its private key, PEM"),
        ("--client-ca", "file with the CA of clients, PEM; clients then need a certificate"),
    ):
        parser.add_argument(name, type=Path, help=what)


def _address_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=8090, help="port; 0: any free port")
    parser.add_argument(
        "--storage",
        type=Path,
        default=Path("vipu-server.json"),
        help="file that stores the partitions",
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
        help="report only what other V-IPU controllers report about IPUs: no position, cluster "
        "and allocation",
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
        raise argparse.ArgumentTypeError(f"{port} is not a port (0 to 65535)")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds (0 to 86400)")
    return seconds


log = structlog.get_logger(__name__)
_THREADS = 16
_STOP_SECONDS = 2.0
_USER = vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"].full_name
_VERSION = vipu_version_pb2.DESCRIPTOR.services_by_name["VersionService"].full_name


class ListenError(Exception):
    """The address cannot be listened on; the sentence says why."""


def utc_now() -> datetime:
    """The time as aware UTC."""
    return datetime.now(UTC)


class VipuServer:
    """A V-IPU controller of simulated machines; `clock` gives the time as aware UTC."""

    def __init__(self, options: ServerOptions, clock: Callable[[], datetime] = utc_now) -> None:
        self._options = options
        self._clock = clock
        self._state = StateFile(options.storage)
        self._server: grpc.Server | None = None
        self._health = health.HealthServicer()
        self._controller: Controller | None = None

    @property
    def controller(self) -> Controller:
        """The controller of a started server."""
        if self._controller is None:
            raise RuntimeError("vipu-server is not started")
        return self._controller

    def start(self) -> int:
        """Load the state, listen, and return the port.

        Raises ValueError for an impossible fleet, TlsFilesError, StateFileError, or ListenError.
        """
        options = self._options
        fleet = fleet_of_parts(options.machines, options.ipus_per_machine, options.parts)
        self._state.open()
        try:
            self._controller = Controller(fleet, self._state, _latencies(options), self._clock)
            port = self._serve(self._controller)
        except BaseException:
            self._state.close()
            raise
        log.info("vipu-server listens", host=options.host, port=port, ipus=len(fleet))
        return port

    def stop(self) -> None:
        """Refuse new calls, let running ones end for up to 2 s, and release the state file."""
        if self._server is not None:
            self._health.enter_graceful_shutdown()
            self._server.stop(_STOP_SECONDS).wait()
            self._server = None
            log.info("vipu-server stopped")
        self._state.close()

    def _serve(self, controller: Controller) -> int:
        server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="vipu"),
            # Two servers on one port would share its connections, each with half the truth.
            options=(("grpc.so_reuseport", 0),),
        )
        published_only = self._options.published_attributes_only
        user = UserService(controller, published_only=published_only)
        add_UserServiceServicer_to_server(user, server)
        add_VersionServiceServicer_to_server(VersionService(version("ipuhub")), server)
        self._add_standard_services(server)
        tls = self._options.tls
        credentials = tls.credentials() if tls else None
        port = _listen(server, self._options.host, self._options.port, credentials)
        server.start()
        self._server = server
        return port

    def _add_standard_services(self, server: grpc.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in ("", _USER, _VERSION):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        names = (_USER, _VERSION, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)


def _latencies(options: ServerOptions) -> Latencies:
    return Latencies(
        timedelta(seconds=options.create_latency_seconds),
        timedelta(seconds=options.reset_latency_seconds),
    )


def _listen(
    server: grpc.Server, host: str, port: int, credentials: grpc.ServerCredentials | None
) -> int:
    # Asked of the operating system first: gRPC keeps the reason to itself and a raw line to stderr.
    reason = _why_not(host, port)
    if not reason:
        try:
            if credentials is not None:
                return server.add_secure_port(_address(host, port), credentials)
            return server.add_insecure_port(_address(host, port))
        except RuntimeError:
            reason = _why_not(host, port) or "gRPC refused it"
    raise ListenError(
        f"cannot listen on {_address(host, port)}: {reason}; "
        "choose another --port or --host, or stop what uses it"
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why_not(host: str, port: int) -> str:
    """Why the operating system refuses the address; empty when it does not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC does, so that connections of a server just stopped do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""


CANNOT_LISTEN = 1
WRONG_OPTIONS = 2
STATE_FILE_UNUSABLE = 3


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    options = parse_options(arguments)
    logs.configure(options.log_level, options.log_format)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = VipuServer(options)
    try:
        server.start()
    except ListenError as error:
        return _refuse(error, CANNOT_LISTEN)
    except StateFileError as error:
        return _refuse(error, STATE_FILE_UNUSABLE)
    except (ValueError, TlsFilesError) as error:
        return _refuse(error, WRONG_OPTIONS)
    stop.wait()
    server.stop()
    return 0


def _refuse(error: Exception, code: int) -> int:
    sys.stderr.write(f"vipu-server: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
