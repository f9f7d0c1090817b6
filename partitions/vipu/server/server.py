"""io: one vipu-server: state file, controller and gRPC port, started and stopped as one."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from partitions.vipu.protos import vipu_user_pb2, vipu_version_pb2
from partitions.vipu.protos.vipu_user_pb2_grpc import add_UserServiceServicer_to_server
from partitions.vipu.protos.vipu_version_pb2_grpc import add_VersionServiceServicer_to_server
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.service import UserService, VersionService
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.topology import fleet_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.server.options import ServerOptions

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

        Raises ValueError for an impossible fleet, StateFileError, or ListenError.
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
        port = _listen(server, self._options.host, self._options.port)
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


def _listen(server: grpc.Server, host: str, port: int) -> int:
    # Asked of the operating system first: gRPC keeps the reason to itself and a raw line to stderr.
    reason = _why_not(host, port)
    if not reason:
        try:
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
