"""glue: the vipu-server command: options, signals, exit codes.

A vipu-server is a state file, a controller and a gRPC port, started and stopped together.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import grpc
import structlog

from ipuhub.process import logs
from ipuhub.process.runtime import allow_open_files, stop_event
from ipuhub.times import utc_now
from partitions.vipu.certificates import init_certificates
from partitions.vipu.discovery import Discovery
from partitions.vipu.errors import VipuError
from partitions.vipu.protos import vipu_user_pb2, vipu_users_pb2, vipu_version_pb2
from partitions.vipu.protos.vipu_user_pb2_grpc import add_UserServiceServicer_to_server
from partitions.vipu.protos.vipu_users_pb2_grpc import add_PartitionKeyServiceServicer_to_server
from partitions.vipu.protos.vipu_version_pb2_grpc import add_VersionServiceServicer_to_server
from partitions.vipu.server.agents.fleet import Identity, LinkTiming, agents_of, fleet_of_agents
from partitions.vipu.server.agents.links import AgentLinks, controller_id_in
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.options import parse_options
from partitions.vipu.server.records import UNCONFIRMED
from partitions.vipu.server.services.admin import ServerFacts
from partitions.vipu.server.services.adminport import STOP_SECONDS, AdminPort
from partitions.vipu.server.services.partitions import (
    UserService,
    VersionService,
    by_access_key,
    everybody,
)
from partitions.vipu.server.services.users import PartitionKeyService
from partitions.vipu.server.state import Draft, State
from partitions.vipu.server.statefile import StateFile, StateFileError
from partitions.vipu.server.userrecords import UserRecord
from partitions.vipu.server.users import check_user_id, hash_key, new_key
from partitions.vipu.serving import (
    STATE_FILE,
    ListenError,
    add_standard_services,
    listen,
    say_health,
)
from partitions.vipu.tlsfiles import TlsFilesError
from partitions.vipu.topology import Topology, fleet_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from grpc_health.v1.health import HealthServicer

    from partitions.vipu.server.options import ServerOptions
    from partitions.vipu.server.sharedwrites import Unwritten

log = structlog.get_logger(__name__)
_THREADS = 16
_USER = vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"].full_name
_KEYS = vipu_users_pb2.DESCRIPTOR.services_by_name["PartitionKeyService"].full_name
_VERSION = vipu_version_pb2.DESCRIPTOR.services_by_name["VersionService"].full_name


class VipuServer:
    """A V-IPU controller of simulated machines, or of machines with agents.

    `clock` gives the time as aware UTC.
    """

    def __init__(self, options: ServerOptions, clock: Callable[[], datetime] = utc_now) -> None:
        self._options = options
        self._clock = clock
        self._state = StateFile(options.storage)
        self._server: grpc.Server | None = None
        self._health: HealthServicer | None = None
        self._saying = threading.Lock()
        self._controller: Controller | None = None
        self._links: AgentLinks | None = None
        self._admin: AdminPort | None = None
        self._discovery: Discovery | None = None

    @property
    def admin_port(self) -> int | None:
        """The port of the admin API of a started server, if it has an admin API."""
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
            # First: what is served from now on may find that the disk is full.
            self._controller.writes.on_failure = self._note_unwritten
            if self._links is not None:
                self._controller.hardware = self._links.hardware
                self._controller.writes.on_change = self._links.changed
                self._links.watch(self._controller)
            else:
                self._end_operations_of_agents(self._controller)
            port = self._serve(self._controller)
            self._discover()
            self._serve_admin(self._controller, port)
        except BaseException:
            self._stop_serving()
            self._stop_links()
            self._state.close()
            raise
        log.info("vipu-server listens", host=options.host, port=port, ipus=len(fleet))
        if not options.secure:
            log.warning(
                "INSECURE MODE: anyone who reaches the port sees and can remove all partitions. "
                "For anything but a lab start with --secure",
                port=port,
            )
        return port

    def _end_operations_of_agents(self, controller: Controller) -> None:
        """End operations of an earlier start with agents, which nothing will confirm any more.

        Raises StateFileError for agents that were created.
        """
        if controller.state.agents:
            raise StateFileError(
                f"{self._options.storage} names agents that vipu-admin created: start with "
                "--agents, or with --machines 0, not with simulated machines"
            )
        for record in controller.list():
            if record.is_unconfirmed:
                controller.confirm(record)

    def stop(self) -> None:
        """Refuse new calls, let running calls end for up to 2 s, and release the state file."""
        if self._server is not None:
            self._stop_serving()
            log.info("vipu-server stopped")
        self._stop_links()
        self._state.close()

    def _stop_serving(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.stop()
        discovery, self._discovery = self._discovery, None
        if discovery is not None:
            discovery.stop()
        server, self._server = self._server, None
        if server is not None:
            if self._health is not None:
                self._health.enter_graceful_shutdown()
            server.stop(STOP_SECONDS).wait()

    def _fleet(self) -> Topology:
        """The IPUs of the agents' machines, or the simulated IPUs."""
        options = self._options
        if options.simulates_machines:
            return fleet_of_parts(options.machines, options.ipus_per_machine, options.parts)
        addresses = agents_of(options.agents.split(",")) if options.agents else {}
        timing = LinkTiming(
            heartbeat_seconds=options.agent_heartbeat_seconds,
            lost_seconds=options.agent_lost_seconds,
        )
        us = Identity(controller_id_in(self._state.lock_path), options.take_over_agents)
        self._links = AgentLinks(addresses, timing, options.agent_tls, self._clock, us)
        ipus = self._links.connect(options.ipus_per_machine)
        return fleet_of_agents(ipus, options.parts) if addresses else Topology(())

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
        names = [_USER, _VERSION]
        caller_of = by_access_key(controller) if self._options.secure else everybody
        user = UserService(controller, published_only=published_only, caller_of=caller_of)
        add_UserServiceServicer_to_server(user, server)
        add_VersionServiceServicer_to_server(VersionService(version("ipuhub")), server)
        if self._options.secure:
            keys = PartitionKeyService(controller, caller_of)
            add_PartitionKeyServiceServicer_to_server(keys, server)
            names.append(_KEYS)
        self._health = add_standard_services(server, names)
        tls = self._options.tls
        credentials = tls.credentials() if tls else None
        port = listen(server, self._options.host, self._options.port, credentials)
        server.start()
        self._server = server
        return port

    def _note_unwritten(self, unwritten: Unwritten | None) -> None:
        """Tell that the state file can no longer be written, or can be again."""
        events = self.controller.events
        if unwritten is None:
            events.note("state file is written again")
        else:
            events.note("state file is not written", is_bad=True, problem=unwritten.reason)
        self._say_health()

    def _say_health(self) -> None:
        """Tell both ports' probes whether the state file is written."""
        with self._saying:  # the last to say it says what is
            is_written = self.controller.writes.unwritten is None
            for health in (self._health, self._admin.health if self._admin else None):
                if health is not None:
                    say_health(health, STATE_FILE, is_well=is_written)

    def _discover(self) -> None:
        names = self._options.autodiscovery_listen_interfaces
        if names:
            discovery = Discovery([name.strip() for name in names.split(",")])
            try:
                discovery.start()
            except OSError as error:
                raise ListenError(f"cannot listen for agents on {names}: {error}") from error
            self._discovery = discovery

    def _serve_admin(self, controller: Controller, api_port: int) -> None:
        options = self._options
        if options.admin_port is not None:
            facts = ServerFacts(
                version=version("ipuhub"),
                started_at=self._clock(),
                state_file=str(options.storage.absolute()),
                agents=self._links.addresses if self._links else {},
                links=self._links,
                discovery=self._discovery,
                api_port=api_port,
                is_secure=options.secure,
            )
            self._admin = AdminPort(controller, facts, is_secure=options.secure)
            self._admin.start(options.admin_host, options.admin_port, options.tls)
        self._say_health()


def _latencies(options: ServerOptions) -> Latencies:
    if not options.simulates_machines:  # the machines say when they are ready
        return Latencies(create=UNCONFIRMED, reset=UNCONFIRMED, confirmed_removal=True)
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
    if options.init or options.tls_init is not None:
        return _prepare(options)
    logs.configure(options.log_level, options.log_format)
    # Each client and each agent has a connection, and so has a probed IPUoF port for a moment.
    allow_open_files()
    try:
        asyncio.run(_serve(VipuServer(options)))
    except ListenError as error:
        return _refuse(error, CANNOT_LISTEN)
    except StateFileError as error:
        return _refuse(error, STATE_FILE_UNUSABLE)
    except (ValueError, TlsFilesError) as error:
        return _refuse(error, WRONG_OPTIONS)
    return 0


async def _serve(server: VipuServer) -> None:
    """Serve until SIGTERM or SIGINT; raises what `VipuServer.start` raises."""
    stop = stop_event()
    server.start()
    await stop.wait()
    server.stop()


def _prepare(options: ServerOptions) -> int:
    """Do what is done once before the first start; returns the exit code."""
    if options.init:
        try:
            sys.stdout.writelines(f"{line}\n" for line in _init_storage(options))
        except StateFileError as error:
            return _refuse(error, STATE_FILE_UNUSABLE)
        except (VipuError, ValueError) as error:
            return _refuse(error, WRONG_OPTIONS)
    if options.tls_init is not None:
        return _make_certificates(options.tls_init, options.tls_hosts)
    return 0


def _init_storage(options: ServerOptions) -> list[str]:
    """Make the state file and return what to say about it.

    Raises StateFileError, or ValueError and InvalidRequest for wrong options.
    """
    draft, lines = Draft(State({}, {}, Occupancy.of(Topology(())))), list[str]()
    if options.secure:
        name, key, now = options.default_user_id or _own_name(), new_key(), utc_now()
        check_user_id(name)
        allocations = options.first_allocations
        draft.put_user(UserRecord(name, hash_key(key), allocations, now, now))
        lines += [f"Default user is: {name}", f"Access key is '{key}'."]
        if not allocations:
            lines.append(
                "There is no allocation yet. Once you have created an allocation: "
                f"vipu-admin grant user {name} --allocations ID"
            )
    file = StateFile(options.storage)
    file.open()
    try:
        if options.storage.exists():
            raise StateFileError(f"the state file {options.storage} exists already")
        file.save(draft.changes, draft.state)
    except OSError as error:
        raise StateFileError(f"cannot write {options.storage}: {error.strerror}") from error
    finally:
        file.close()
    return [f"initialised storage: {options.storage}", *lines]


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a uid of a container, which no file names
        raise ValueError("this user has no name: give --default-user-id") from error


def _make_certificates(folder: Path, more_hosts: str) -> int:
    hosts = ["localhost", "127.0.0.1", socket.gethostname()]
    hosts += [host.strip() for host in more_hosts.split(",") if host.strip()]
    try:
        made = init_certificates(folder, list(dict.fromkeys(hosts)), utc_now())
    except (TlsFilesError, ValueError) as error:
        return _refuse(error, WRONG_OPTIONS)
    sys.stdout.writelines(f"certificate of {each.name}: {each}\n" for each in made)
    sys.stdout.write(f"keep {folder / 'ca.key'} away from the servers: it makes certificates\n")
    return 0


def _refuse(error: Exception, code: int) -> int:
    sys.stderr.write(f"vipu-server: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
