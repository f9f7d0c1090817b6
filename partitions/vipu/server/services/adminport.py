"""io: the port of the admin API, separate from the users' port so that it can be in another
network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import grpc
import structlog

from partitions.vipu.certificates import Role
from partitions.vipu.protos import (
    vipu_admin_pb2,
    vipu_diagnostics_pb2,
    vipu_fleet_pb2,
    vipu_user_pb2,
    vipu_users_pb2,
)
from partitions.vipu.protos.vipu_admin_pb2_grpc import add_AdminServiceServicer_to_server
from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import (
    add_DiagnosticsServiceServicer_to_server,
)
from partitions.vipu.protos.vipu_fleet_pb2_grpc import add_FleetServiceServicer_to_server
from partitions.vipu.protos.vipu_user_pb2_grpc import add_UserServiceServicer_to_server
from partitions.vipu.protos.vipu_users_pb2_grpc import add_UserAdminServiceServicer_to_server
from partitions.vipu.rolecheck import RoleCheck
from partitions.vipu.server.diagnostics import Diagnostics, SimulatedTester
from partitions.vipu.server.services.admin import AdminService
from partitions.vipu.server.services.diagnostics import DiagnosticsService
from partitions.vipu.server.services.fleet import FleetService
from partitions.vipu.server.services.partitions import UserService
from partitions.vipu.server.services.users import UserAdminService
from partitions.vipu.serving import add_standard_services, listen

if TYPE_CHECKING:
    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.services.admin import ServerFacts
    from partitions.vipu.tlsfiles import ServerTls

STOP_SECONDS: Final = 2.0
_THREADS: Final = 16  # some may wait for agents that do not answer
_ADMIN: Final = vipu_admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
_DIAGNOSTICS: Final = vipu_diagnostics_pb2.DESCRIPTOR.services_by_name[
    "DiagnosticsService"
].full_name
_FLEET: Final = vipu_fleet_pb2.DESCRIPTOR.services_by_name["FleetService"].full_name
_PARTITIONS: Final = vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"].full_name
_USERS: Final = vipu_users_pb2.DESCRIPTOR.services_by_name["UserAdminService"].full_name

log = structlog.get_logger(__name__)


class AdminPort:
    """Serves administrators until it is stopped; `port` is known once it has started.

    `health` is its health service.
    """

    def __init__(self, controller: Controller, facts: ServerFacts, *, is_secure: bool) -> None:
        self.port = 0
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="vipu-admin"),
            options=(("grpc.so_reuseport", 0),),  # as of the users' port
            interceptors=[RoleCheck({Role.ADMIN})] if is_secure else None,
        )
        add_AdminServiceServicer_to_server(AdminService(controller, facts), self._server)
        add_FleetServiceServicer_to_server(FleetService(controller, facts), self._server)
        # What users may ask an administrator may ask, too, and of everybody's partitions.
        add_UserServiceServicer_to_server(UserService(controller), self._server)
        users = UserAdminService(controller, facts.api_port)
        add_UserAdminServiceServicer_to_server(users, self._server)
        self._diagnostics = Diagnostics(controller, facts.links or SimulatedTester(controller))
        add_DiagnosticsServiceServicer_to_server(
            DiagnosticsService(self._diagnostics), self._server
        )
        names = (_ADMIN, _FLEET, _USERS, _DIAGNOSTICS, _PARTITIONS)
        self.health = add_standard_services(self._server, names)

    def start(self, host: str, port: int, tls: ServerTls | None) -> None:
        """Listen; port 0 takes any free port. Raises ListenError or TlsFilesError."""
        self.port = listen(self._server, host, port, tls.credentials() if tls else None)
        self._server.start()
        log.info("admin API listens", host=host, port=self.port)
        if tls is None or tls.client_ca is None:
            log.warning(
                "anyone who reaches the admin API may do everything: keep its port in the "
                "management network, or set --client-ca",
                port=self.port,
            )

    def stop(self) -> None:
        """Refuse new calls and let running calls end for up to 2 s."""
        self.health.enter_graceful_shutdown()
        self._server.stop(STOP_SECONDS).wait()
        self._diagnostics.stop()
