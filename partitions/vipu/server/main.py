"""glue: the vipu-server command: options, signals, exit codes.

A vipu-server is a state file, a controller and a gRPC port, started and stopped together.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import structlog

from ipuhub.process import logs
from partitions.vipu.protos import vipu_user_pb2, vipu_version_pb2
from partitions.vipu.protos.vipu_user_pb2_grpc import add_UserServiceServicer_to_server
from partitions.vipu.protos.vipu_version_pb2_grpc import add_VersionServiceServicer_to_server
from partitions.vipu.server.adminport import STOP_SECONDS, AdminPort
from partitions.vipu.server.adminservice import ServerFacts
from partitions.vipu.server.agentfleet import agents_of, fleet_of_agents
from partitions.vipu.server.agentlinks import AgentLinks, LinkTiming
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.records import UNCONFIRMED
from partitions.vipu.server.service import UserService, VersionService
from partitions.vipu.server.statefile import StateFile, StateFileError, default_storage
from partitions.vipu.serving import (
    ListenError,
    OptionParser,
    add_log_options,
    add_standard_services,
    add_tls_options,
    listen,
    port_number,
    seconds,
    server_tls,
)
from partitions.vipu.tlsfiles import ClientTls, TlsFilesError
from partitions.vipu.topology import fleet_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from grpc_health.v1.health import HealthServicer

    from partitions.vipu.tlsfiles import ServerTls
    from partitions.vipu.topology import Topology

_ENVIRONMENT: Final = "IPUHUB_SIMULATED_VIPU_"
"""Not VIPU_SERVER_: Kubernetes sets VIPU_SERVER_PORT beside a Service named vipu-server."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    agents: str = ""
    agent_lost_seconds: float = 5.0
    agent_ca: Path | None = None
    agent_certificate: Path | None = None
    agent_key: Path | None = None

    @property
    def agent_tls(self) -> ClientTls | None:
        """TLS towards the agents, if they have any; raises ValueError, TlsFilesError."""
        if self.agent_ca is None:
            if self.agent_certificate or self.agent_key:
                raise ValueError("--agent-certificate and --agent-key need --agent-ca")
            return None
        return ClientTls(self.agent_ca, self.agent_certificate, self.agent_key)

    @property
    def tls(self) -> ServerTls | None:
        """TLS of the port, if it has any; raises ValueError."""
        return server_tls(self.tls_certificate, self.tls_key, self.client_ca)

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
    command_line = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    options = parser.read(_ENVIRONMENT, command_line, environ)
    if options.storage is None:
        try:
            options.storage = default_storage(environ, is_root=os.geteuid() == 0)
        except StateFileError as error:
            parser.error(str(error))
    return ServerOptions(**vars(options))


def _parser() -> OptionParser:
    parser = OptionParser(
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
    _agent_options(parser)
    add_tls_options(parser)
    add_log_options(parser)
    return parser


def _address_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=port_number, default=8090, help="port; 0: any free port")
    parser.add_argument(
        "--admin-host",
        default="127.0.0.1",
        help="address of the admin API, for a network of its own",
    )
    parser.add_argument(
        "--admin-port",
        type=port_number,
        help="port of the admin API, usually 8091; without: there is none",
    )
    parser.add_argument(
        "--storage",
        type=Path,
        help="file that stores the partitions (as root /var/lib/ipuhub/vipu-server.json, else "
        "ipuhub/vipu-server.json in XDG_STATE_HOME or ~/.local/state)",
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
    for what, usual in (("create", 0.5), ("reset", 0.2)):
        parser.add_argument(
            f"--{what}-latency-seconds",
            type=seconds,
            default=usual,
            help=f"how long it takes to {what} a partition",
        )


def _agent_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agents",
        default="",
        help="host:port of each machine's vipu-agent, in IPU-Link order, separated by commas; "
        "without: simulate --machines machines here",
    )
    parser.add_argument(
        "--agent-lost-seconds",
        type=seconds,
        default=5.0,
        help="how long an agent may be silent before its IPUs count as lost",
    )
    for name, what in (
        ("--agent-ca", "file with the CA of the agents, PEM; none: no TLS"),
        ("--agent-certificate", "file with our certificate for agents, PEM"),
        ("--agent-key", "file with its private key, PEM"),
    ):
        parser.add_argument(name, type=Path, help=what)


log = structlog.get_logger(__name__)
_THREADS = 16
_USER = vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"].full_name
_VERSION = vipu_version_pb2.DESCRIPTOR.services_by_name["VersionService"].full_name


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
        self._health: HealthServicer | None = None
        self._controller: Controller | None = None
        self._links: AgentLinks | None = None
        self._admin: AdminPort | None = None

    @property
    def admin_port(self) -> int | None:
        """The port of the admin API of a started server, if it has one."""
        return self._admin.port if self._admin else None

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
        self._state.open()
        try:
            fleet = self._fleet()
            self._controller = Controller(fleet, self._state, _latencies(options), self._clock)
            if self._links is not None:
                self._controller.hardware = self._links.hardware
                self._controller.on_change = self._links.changed
                self._links.watch(self._controller)
            port = self._serve(self._controller)
            self._serve_admin(self._controller)
        except BaseException:
            self._stop_serving()
            self._stop_links()
            self._state.close()
            raise
        log.info("vipu-server listens", host=options.host, port=port, ipus=len(fleet))
        return port

    def stop(self) -> None:
        """Refuse new calls, let running ones end for up to 2 s, and release the state file."""
        if self._server is not None:
            self._stop_serving()
            log.info("vipu-server stopped")
        self._stop_links()
        self._state.close()

    def _stop_serving(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.stop()
        server, self._server = self._server, None
        if server is not None:
            if self._health is not None:
                self._health.enter_graceful_shutdown()
            server.stop(STOP_SECONDS).wait()

    def _fleet(self) -> Topology:
        """The IPUs of the agents' machines, or the simulated ones."""
        options = self._options
        if not options.agents:
            return fleet_of_parts(options.machines, options.ipus_per_machine, options.parts)
        addresses = agents_of(options.agents.split(","))
        timing = LinkTiming(lost_seconds=options.agent_lost_seconds)
        self._links = AgentLinks(addresses, timing, options.agent_tls)
        return fleet_of_agents(self._links.connect(options.ipus_per_machine), options.parts)

    def _stop_links(self) -> None:
        links, self._links = self._links, None
        if links is not None:
            links.stop()

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
        self._health = add_standard_services(server, (_USER, _VERSION))
        tls = self._options.tls
        credentials = tls.credentials() if tls else None
        port = listen(server, self._options.host, self._options.port, credentials)
        server.start()
        self._server = server
        return port

    def _serve_admin(self, controller: Controller) -> None:
        options = self._options
        if options.admin_port is not None:
            facts = ServerFacts(
                version=version("ipuhub"),
                started_at=self._clock(),
                state_file=str(options.storage.absolute()),
                agents=self._links.addresses if self._links else {},
                links=self._links,
            )
            self._admin = AdminPort(controller, facts)
            self._admin.start(options.admin_host, options.admin_port, options.tls)


def _latencies(options: ServerOptions) -> Latencies:
    if options.agents:  # the machines say when they are ready
        return Latencies(create=UNCONFIRMED, reset=UNCONFIRMED)
    return Latencies(
        create=timedelta(seconds=options.create_latency_seconds),
        reset=timedelta(seconds=options.reset_latency_seconds),
    )


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
