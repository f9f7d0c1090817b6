"""glue: the options of vipu-server, from the command line and the environment."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from partitions.vipu.agent.holder import HELD_FOR
from partitions.vipu.certificates import Role
from partitions.vipu.server.statefile import StateFileError, default_storage
from partitions.vipu.serving import (
    OptionParser,
    add_log_options,
    add_secure_options,
    add_tls_options,
    port_number,
    seconds,
    secure_tls,
    server_tls,
)
from partitions.vipu.tlsfiles import ClientTls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from partitions.vipu.tlsfiles import ServerTls

_ENVIRONMENT: Final = "IPUHUB_SIMULATED_VIPU_"
"""Not VIPU_SERVER_: Kubernetes sets VIPU_SERVER_PORT beside a Service named vipu-server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a vipu-server; port 0 takes any free port.

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
    agent_heartbeat_seconds: float = 1.0
    agent_lost_seconds: float = 5.0
    take_over_agents: bool = False
    autodiscovery_listen_interfaces: str = ""
    agent_ca: Path | None = None
    agent_certificate: Path | None = None
    agent_key: Path | None = None
    secure: bool = False
    tls_dir: Path | None = None
    tls_init: Path | None = None
    tls_hosts: str = ""
    init: bool = False
    default_user_id: str = ""

    @property
    def simulates_machines(self) -> bool:
        """Return whether this process is its machines; else agents are, named here or created
        later."""
        return not self.agents and self.machines != 0

    @property
    def first_allocations(self) -> tuple[str, ...]:
        """The allocations that there are at the first start; raises ValueError."""
        if not self.agents and self.machines == 0:
            return ()
        return tuple(sorted(allocation for _, allocation in self.parts))

    @property
    def agent_tls(self) -> ClientTls | None:
        """TLS towards the agents, if they have any; raises ValueError, TlsFilesError."""
        if self.secure and self.agent_ca is None and self.tls_dir is not None:
            ours = self.tls_dir / Role.SERVER
            return ClientTls(ours / "ca.crt", ours / "tls.crt", ours / "tls.key")
        if self.agent_ca is None:
            if self.agent_certificate or self.agent_key:
                raise ValueError("--agent-certificate and --agent-key need --agent-ca")
            return None
        return ClientTls(self.agent_ca, self.agent_certificate, self.agent_key)

    @property
    def tls(self) -> ServerTls | None:
        """TLS of the port, if it has any; raises ValueError."""
        files = (self.tls_certificate, self.tls_key, self.client_ca)
        return secure_tls(Role.SERVER, self.tls_dir, files) if self.secure else server_tls(*files)

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
    where an option is wrong."""
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
        examples=(
            "vipu-server --machines 16 --admin-port 8091",
            "vipu-server --agents 10.1.2.1:8080,10.1.2.2:8080 --admin-port 8091",
            "vipu-server --tls-init /etc/ipuhub/vipu-tls --tls-hosts vipu.example.org",
            "vipu-server --init --secure --default-user-id alice",
            "vipu-server --secure --tls-dir /etc/ipuhub/vipu-tls --host 0.0.0.0 --machines 16",
        ),
    )
    _address_options(parser)
    _fleet_options(parser)
    _agent_options(parser)
    add_tls_options(parser)
    add_secure_options(parser)
    _certificate_options(parser)
    add_log_options(parser)
    return parser


def _address_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; ::, every address"
    )
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
        "--machines",
        type=int,
        default=8,
        help="number of simulated IPU-Machines of each allocation; 0: none, vipu-admin creates "
        "agents",
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
        "without: simulate --machines machines here, unless that is 0",
    )
    parser.add_argument(
        "--agent-heartbeat-seconds",
        type=_heartbeat,
        default=1.0,
        help="how long to wait between two calls of an agent (0.1 to 5); a call is given up after "
        "the same time",
    )
    parser.add_argument(
        "--agent-lost-seconds",
        type=seconds,
        default=5.0,
        help="how long an agent may be silent before its IPUs count as lost",
    )
    parser.add_argument(
        "--take-over-agents",
        action="store_true",
        help="take agents from another vipu-server that still uses them; their partitions end",
    )
    parser.add_argument(
        "-a",
        "--autodiscovery-listen-interfaces",
        default="",
        metavar="NAME,...",
        help="network interfaces on which to listen for vipu-agent --announce-interfaces, for "
        "vipu-admin discover agents",
    )
    for name, what in (
        ("--agent-ca", "file with the CA of the agents, PEM; none: no TLS"),
        ("--agent-certificate", "file with our certificate for agents, PEM"),
        ("--agent-key", "file with its private key, PEM"),
    ):
        parser.add_argument(name, type=Path, help=what)


def _heartbeat(text: str) -> float:
    """A pause between calls in which an agent does not forget its controller, even if two of three
    calls are lost."""
    pause = float(text)
    if not 0.1 <= pause <= HELD_FOR.total_seconds() / 3:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds (0.1 to 5)")
    return pause


def _certificate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--init",
        action="store_true",
        help="make the state file, with --secure also a first user of all allocations (with "
        "--machines 0 of none: there are none yet), and end",
    )
    parser.add_argument(
        "--default-user-id",
        default="",
        metavar="ID",
        help="that user's id; without: the name of the user who runs it",
    )
    parser.add_argument(
        "--tls-init",
        type=Path,
        nargs="?",
        const=Path("vipu-certs"),
        metavar="DIR",
        help="make a CA and the certificates of server, agents, administrators and users in this "
        "folder, or renew the certificates of the CA that is there, and end",
    )
    parser.add_argument(
        "--tls-hosts",
        default="",
        metavar="NAME,...",
        help="further names and addresses of server and agents in the certificates of --tls-init, "
        "beside this host's name, localhost and 127.0.0.1",
    )
