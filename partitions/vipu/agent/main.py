"""glue: the vipu-agent command: options, signals, exit codes.

`vipu-agent` serves the agent API and the metrics of one IPU-Machine, or of several simulated
machines. `vipu-agent fault` and `vipu-agent repair` inject and repair faults of a simulated
machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog
from grpc import aio

from ipuhub.process import logs
from ipuhub.process.runtime import allow_open_files, stop_event
from ipuhub.times import utc_now
from partitions.vipu.agent import faultcommand
from partitions.vipu.agent.exporter import Exporter
from partitions.vipu.agent.ipuof import IpuofPorts
from partitions.vipu.agent.service import AgentService
from partitions.vipu.agent.simulated import MachineLatencies, SimulatedMachine
from partitions.vipu.certificates import Role
from partitions.vipu.discovery import Announcer
from partitions.vipu.protos import vipu_agent_pb2, vipu_diagnostics_pb2
from partitions.vipu.protos.vipu_agent_pb2_grpc import add_AgentServiceServicer_to_server
from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import (
    add_AgentDiagnosticsServiceServicer_to_server,
)
from partitions.vipu.rolecheck import AioRoleCheck
from partitions.vipu.serving import (
    ListenError,
    OptionParser,
    add_log_options,
    add_secure_options,
    add_standard_services,
    add_tls_options,
    listen,
    port_number,
    seconds,
    secure_tls,
    server_tls,
)
from partitions.vipu.tlsfiles import TlsFilesError
from partitions.vipu.topology import AGENT_PREFIX, PARTITION_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from partitions.vipu.tlsfiles import ServerTls

_ENVIRONMENT: Final = "IPUHUB_VIPU_AGENT_"
_SERVICE: Final = vipu_agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name
_DIAGNOSTICS: Final = vipu_diagnostics_pb2.DESCRIPTOR.services_by_name[
    "AgentDiagnosticsService"
].full_name
_STOP_SECONDS: Final = 2.0
_MOST_MACHINES: Final = 1024
CANNOT_LISTEN, WRONG_OPTIONS = 1, 2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Options of a vipu-agent; with several machines, agents and ports count up."""

    agent: str = f"{AGENT_PREFIX}0"
    host: str = "127.0.0.1"
    port: int = 8080
    exporter_port: int = 2112
    ipuof_port: int = 0
    machines: int = 1
    ipus: int = 4
    configure_latency_seconds: float = 0.5
    reset_latency_seconds: float = 0.2
    log_level: str = "info"
    log_format: str = "text"
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    announce_interfaces: str = ""
    secure: bool = False
    tls_dir: Path | None = None

    @property
    def tls(self) -> ServerTls | None:
        """TLS of the port, if it has any; raises ValueError."""
        files = (self.tls_certificate, self.tls_key, self.client_ca)
        return secure_tls(Role.AGENT, self.tls_dir, files) if self.secure else server_tls(*files)

    @property
    def agents(self) -> list[str]:
        """The names of the agents; raises ValueError when they cannot be counted."""
        if not 1 <= self.machines <= _MOST_MACHINES:
            raise ValueError(f"--machines is 1 to {_MOST_MACHINES}, not {self.machines}")
        if self.ipus not in PARTITION_SIZES:
            sizes = ", ".join(map(str, PARTITION_SIZES))
            raise ValueError(f"--ipus is one of {sizes}, not {self.ipus}")
        if self.machines == 1:
            return [self.agent]
        name = self.agent.rstrip("0123456789")
        first = int(self.agent[len(name) :] or 0)
        return [f"{name}{first + count}" for count in range(self.machines)]


def parse_options(
    arguments: list[str] | None = None, environ: Mapping[str, str] = os.environ
) -> AgentOptions:
    """Read the command line, and before it the environment; ends the process with a usage text
    where an option is wrong."""
    command_line = sys.argv[1:] if arguments is None else arguments
    return AgentOptions(**vars(_parser().read(_ENVIRONMENT, command_line, environ)))


def _parser() -> OptionParser:
    parser = OptionParser(
        prog="vipu-agent",
        description="The V-IPU agent of a simulated IPU-Machine (IPU-M2000): the agent API for "
        "vipu-server, and metrics for Prometheus. `vipu-agent fault --help` and `vipu-agent repair "
        "--help` are about faults on command.",
        epilog="Each option can also be given as a variable of the environment: "
        f"{_ENVIRONMENT}PORT for --port. Exit codes: 0 stopped; 1 cannot listen; 2 wrong options.",
        examples=(
            "vipu-agent --host 0.0.0.0 --agent ag0",
            "vipu-agent --machines 16 --port 8100 --exporter-port 2200",
            "vipu-agent --host 0.0.0.0 --secure --tls-dir /etc/ipuhub/vipu-tls",
        ),
    )
    add = parser.add_argument
    add("--agent", default="ag0", help="name of the agent in metrics (ag0)")
    add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1); ::, every address")
    add("--port", type=port_number, default=8080, help="port of the agent API (8080); 0: any")
    add(
        "--exporter-port",
        type=port_number,
        default=2112,
        help="port of /metrics (2112); 0: any",
    )
    add(
        "--ipuof-port",
        type=port_number,
        default=0,
        help="first of the IPUoF ports, one for each IPU, open while a partition has it; 0: any "
        "(0)",
    )
    add(
        "--machines",
        type=int,
        default=1,
        help="number of simulated machines in this process (1); their names and ports count up "
        "from --agent, --port, --exporter-port and --ipuof-port",
    )
    add(
        "--announce-interfaces",
        default="",
        metavar="NAME,...",
        help="network interfaces on which the agent announces itself to vipu-server "
        "--autodiscovery-listen-interfaces",
    )
    add("--ipus", type=int, default=4, help="IPUs of each machine (4)")
    for what, usual in (("configure", 0.5), ("reset", 0.2)):
        add(
            f"--{what}-latency-seconds",
            type=seconds,
            default=usual,
            help=f"how long it takes to {what} a partition ({usual})",
        )
    add_tls_options(parser)
    add_secure_options(parser)
    add_log_options(parser)
    return parser


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one agent."""

    api: int
    exporter: int


class VipuAgent:
    """The agents of some simulated machines; `clock` gives the time as aware UTC."""

    def __init__(self, options: AgentOptions, clock: Callable[[], datetime] = utc_now) -> None:
        self._options = options
        self._clock = clock
        self._running = AsyncExitStack()
        self.machines: list[SimulatedMachine] = []

    async def start(self) -> list[Ports]:
        """Listen and return the ports of each agent; raises ValueError, TlsFilesError, ListenError.

        Raises nothing without having closed all ports again.
        """
        async with AsyncExitStack() as running:
            ports = [
                await self._start(running, agent, number)
                for number, agent in enumerate(self._options.agents)
            ]
            self._announce(running, [each.api for each in ports])
            self._running = running.pop_all()
        log.info(
            "vipu-agent listens",
            host=self._options.host,
            port=ports[0].api,
            exporter_port=ports[0].exporter,
            machines=len(ports),
        )
        if not self._options.secure:
            log.warning(
                "INSECURE MODE: anyone who reaches the port can release partitions on it. "
                "For anything but a lab start with --secure",
                port=ports[0].api,
            )
        return ports

    async def stop(self) -> None:
        """Refuse new calls, and let running calls end for up to 2 s."""
        await self._running.aclose()
        log.info("vipu-agent stopped")

    def _announce(self, running: AsyncExitStack, ports: list[int]) -> None:
        if names := self._options.announce_interfaces:
            agents = dict(zip(self._options.agents, ports, strict=True))
            interfaces = [name.strip() for name in names.split(",")]
            announcer = Announcer(interfaces, self._options.host, agents)
            task = asyncio.create_task(announcer.run())
            running.callback(task.cancel)

    async def _start(self, running: AsyncExitStack, agent: str, number: int) -> Ports:
        options = self._options
        last = _counted(options.ipuof_port, (number + 1) * options.ipus - 1)
        first = last - options.ipus + 1 if last else 0
        ipuof = IpuofPorts.reserve(options.host, first, options.ipus)
        running.callback(ipuof.close)
        latencies = _latencies(options)
        machine = SimulatedMachine(agent, self._clock(), options.ipus, latencies, ipuof.ports)
        service = AgentService(agent, machine, self._clock, machine, ipuof)
        # Two agents on one port would share its connections, each with a machine of its own.
        callers = [AioRoleCheck({Role.SERVER, Role.ADMIN})] if options.secure else []
        server = aio.server(interceptors=callers, options=(("grpc.so_reuseport", 0),))
        add_AgentServiceServicer_to_server(service, server)
        add_AgentDiagnosticsServiceServicer_to_server(service, server)
        add_standard_services(server, (_SERVICE, _DIAGNOSTICS))
        tls = options.tls
        credentials = tls.credentials() if tls else None
        exporter = Exporter(agent, machine, self._clock, service.wait_while_hung)
        exporter_port = await exporter.start(options.host, _counted(options.exporter_port, number))
        running.push_async_callback(exporter.stop)
        # Before the first answer: a server keeps the inventory until the machine starts again.
        service.exporter_port = exporter_port
        port = listen(server, options.host, _counted(options.port, number), credentials)
        await server.start()
        running.push_async_callback(server.stop, _STOP_SECONDS)
        running.callback(service.stop_following)
        self.machines.append(machine)
        return Ports(port, exporter_port)


def _counted(first: int, number: int) -> int:
    if first and first + number > 65535:
        raise ValueError(f"the ports from {first} on are too few: choose a lower port")
    return first + number if first else 0


def _latencies(options: AgentOptions) -> MachineLatencies:
    return MachineLatencies(
        configure=timedelta(seconds=options.configure_latency_seconds),
        reset=timedelta(seconds=options.reset_latency_seconds),
    )


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or do one of the subcommands; returns the exit code."""
    command_line = sys.argv[1:] if arguments is None else arguments
    if command_line and command_line[0] in faultcommand.NAMES:
        return faultcommand.run(command_line)
    options = parse_options(command_line)
    logs.configure(options.log_level, options.log_format)
    # Each machine has a port for each of its IPUs.
    allow_open_files()
    return asyncio.run(_serve(options))


async def _serve(options: AgentOptions) -> int:
    stop = stop_event()
    agent = VipuAgent(options)
    try:
        await agent.start()
    except ListenError as error:
        return _refuse(error, CANNOT_LISTEN)
    except (ValueError, TlsFilesError) as error:
        return _refuse(error, WRONG_OPTIONS)
    await stop.wait()
    await agent.stop()
    return 0


def _refuse(error: Exception, code: int) -> int:
    sys.stderr.write(f"vipu-agent: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
