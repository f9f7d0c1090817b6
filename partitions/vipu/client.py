"""io: the gRPC client of a V-IPU controller; every call has a deadline."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import grpc
import structlog
from google.protobuf.message import Message
from grpc import StatusCode

from partitions.vipu import wire
from partitions.vipu.codes import error_of
from partitions.vipu.errors import VipuError
from partitions.vipu.protos import vipu_admin_pb2 as admin_pb
from partitions.vipu.protos import vipu_user_pb2 as pb
from partitions.vipu.protos import vipu_users_pb2 as users_pb
from partitions.vipu.protos import vipu_version_pb2 as version_pb
from partitions.vipu.protos.vipu_admin_pb2_grpc import AdminServiceStub
from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import DiagnosticsServiceStub
from partitions.vipu.protos.vipu_fleet_pb2_grpc import FleetServiceStub
from partitions.vipu.protos.vipu_user_pb2_grpc import UserServiceStub
from partitions.vipu.protos.vipu_users_pb2_grpc import (
    PartitionKeyServiceStub,
    UserAdminServiceStub,
)
from partitions.vipu.protos.vipu_version_pb2_grpc import VersionServiceStub
from partitions.vipu.telemetry import heartbeat_from_attributes
from partitions.vipu.topology import topology_from_attributes
from partitions.vipu.types import (
    CreateRequest,
    IpuofConfig,
    OperationState,
    ReadyState,
    VipuPartition,
    VipuStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc import aio

    from partitions.vipu.protos.vipu_user_pb2_grpc import UserServiceAsyncStub
    from partitions.vipu.protos.vipu_version_pb2_grpc import VersionServiceAsyncStub
    from partitions.vipu.telemetry import Heartbeat
    from partitions.vipu.topology import Topology

__all__ = [
    "CreateRequest",
    "IpuofConfig",
    "OperationState",
    "ReadyState",
    "TlsFiles",
    "VipuClient",
    "VipuPartition",
    "VipuStatus",
]

log = structlog.get_logger(__name__)
_OPTIONS: tuple[tuple[str, int], ...] = (
    # Found again soon after it was down; gRPC's own backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    # How long one attempt to connect may take; it must leave room for TLS on a busy machine.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A peer that vanished without a word is noticed by a ping under a call, not by TCP after
    # a quarter of an hour; no pings between calls, which servers punish.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # Controllers stand in the management network; a web proxy of the environment has no way there.
    ("grpc.enable_http_proxy", 0),
    # The attributes of a fleet of thousands of IPUs are larger than the usual 4 MiB.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)

_Question = TypeVar("_Question", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM texts: the CA that signed the server, and, for mutual TLS, our certificate and key."""

    ca: bytes
    certificate: bytes | None = None
    key: bytes | None = None


# How Graphcore's clients send user and key is not public: these two headers are IPUHub's own.
USER_ID: Final = "vipu-user-id"
ACCESS_KEY: Final = "vipu-access-key"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and its access key, which no log shows."""

    user_id: str
    access_key: str = field(repr=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers of a call."""
        return ((USER_ID, self.user_id), (ACCESS_KEY, self.access_key))


class VipuClient:
    """One controller, over one connection that all calls share and that comes back by itself.

    `address` is "host:port". Every method raises a VipuError: NoAnswer when the controller does
    not answer within `deadline_seconds`, else what the controller says. `tls` is called at
    each call: with other files a new connection is opened. `credentials` are sent with each call
    over TLS, and never without. `pod_tls`: what pods show this controller; None: they need no key.
    """

    def __init__(
        self,
        address: str,
        *,
        deadline_seconds: float = 10.0,
        tls: Callable[[], TlsFiles] | None = None,
        credentials: Callable[[], Credentials | None] | None = None,
        pod_tls: Callable[[], TlsFiles | None] | None = None,
    ) -> None:
        self.address = address
        self._deadline_seconds = deadline_seconds
        self._tls = tls
        # A key is not for everybody on the way to read.
        self._credentials = credentials if tls else None
        self._pod_tls = pod_tls
        self._channel: aio.Channel | None = None
        self._used: TlsFiles | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._listed: dict[bytes, VipuPartition] = {}
        self._fleet: tuple[bytes, Topology] | None = None  # of the last answer, by its digest
        self._is_missing_logged = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; a later call opens it again."""
        channel, self._channel = self._channel, None
        await asyncio.gather(*self._ending)
        if channel is not None:
            await channel.close(None)

    async def list_partitions(self, allocation_id: str = "") -> list[VipuPartition]:
        """All partitions, including other clients', or the partitions of one allocation."""
        question = pb.ListPartitionsRequest(allocation_id=allocation_id)
        answer = await self._call(self._user.ListPartitions, question)
        self._listed = wire.partitions_from_messages(answer.partitions, self._listed)
        return list(self._listed.values())

    async def list_ipu_attributes(self) -> Topology:
        """The fleet: every IPU with its place, agent, cluster and allocation.

        A fleet that has not changed is not read again: reading 4,096 IPUs takes 60 ms of CPU.
        """
        answer = await self._call(self._user.ListIPUAttributes, pb.ListIPUAttributesRequest())
        digest = sha256(answer.SerializeToString(deterministic=True)).digest()
        if self._fleet is None or self._fleet[0] != digest:
            self._fleet = digest, topology_from_attributes(wire.attributes_from_message(answer))
        return self._fleet[1]

    async def heartbeat(self, agent: str) -> Heartbeat:
        """The last heartbeat of a machine's agent, as far as the controller reports it; raises
        InvalidRequest for an agent that it does not have."""
        question = pb.ListIPUAttributesRequest(agents=[agent])
        answer = await self._call(self._user.ListIPUAttributes, question)
        return heartbeat_from_attributes(wire.attributes_from_message(answer).get(agent, {}))

    async def create_partition(self, request: CreateRequest) -> str:
        """Ask for a partition and return its id; it is PENDING until its status says ACTIVE.

        Raises AlreadyExists, NoCapacity or InvalidRequest. After Unavailable it may exist.
        """
        answer = await self._call(self._user.CreatePartition, wire.request_to_message(request))
        return answer.partition_id

    async def partition_status(self, partition_id: str) -> VipuStatus:
        """The state of a partition; raises NotFound."""
        question = pb.GetPartitionStatusRequest(partition_id=partition_id)
        answer = await self._call(self._user.GetPartitionStatus, question)
        return wire.status_from_message(answer.status)

    async def reset_partition(self, partition_id: str, *, relocatable: bool = False) -> None:
        """Begin to bring a partition back to its first state on the same IPUs, or on others where
        these cannot be used and it is `relocatable`; raises NotFound or NotReady."""
        question = pb.ResetPartitionRequest(partition_id=partition_id, relocatable=relocatable)
        await self._call(self._user.ResetPartition, question)

    async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
        """Begin to remove a partition; `force` waits for no machine; raises NotFound."""
        question = pb.RemovePartitionRequest(partition_id=partition_id, force=force)
        await self._call(self._user.RemovePartition, question)

    async def ipuof_config(self, partition_id: str, gcd: int | None = None) -> IpuofConfig:
        """Return how to reach the devices of an ACTIVE partition, of one GCD or of all.

        Raises NotFound, NotReady or InvalidRequest.
        """
        question = pb.GetPartitionIpuofConfigRequest(
            partition_id=partition_id,
            gcd_id=None if gcd is None else pb.GetPartitionIpuofConfigRequest.GcdID(id=gcd),
        )
        answer = await self._call(self._user.GetPartitionIpuofConfig, question)
        return wire.config_from_message(answer.ipuof_config)

    async def ask(self, method: str, question: _Question) -> Any:
        """Call a method by its name and return the whole message, with what this release does not
        know."""
        return await self.ask_user(method, question)

    async def ask_user(self, method: str, question: _Question) -> Any:
        """Call a method of UserService, whose names the admin API has, too; see `ask`."""
        return await self._call(getattr(self._user, method), question)

    def pod_tls(self) -> TlsFiles | None:
        """Return what pods with a key present and trust; None: pods get no key.

        Raises Unavailable while the files cannot be used.
        """
        return self._pod_tls() if self._pod_tls else None

    async def create_partition_key(self, partition_id: str) -> Credentials | None:
        """A user and key that read and reset this partition alone; None from a controller without
        such keys, which is logged once. Raises NotFound.
        """
        question = users_pb.CreatePartitionKeyRequest(partition_id=partition_id)
        try:
            stub = PartitionKeyServiceStub(self._connection)
            made: users_pb.AccessKey = await self._call(stub.CreatePartitionKey, question)
        except VipuError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.aio.AioRpcError) and cause.code() is StatusCode.UNIMPLEMENTED:
                self._log_missing()
                return None
            raise
        return Credentials(made.user_id, made.access_key)

    def _log_missing(self) -> None:
        if not self._is_missing_logged:
            self._is_missing_logged = True
            reason = "the controller makes no keys for partitions"
            log.warning("pods get no key to their partitions", controller=self.address, why=reason)

    async def version(self) -> str:
        """The version of the controller."""
        stub: VersionServiceAsyncStub = VersionServiceStub(self._connection)
        return (await self._call(stub.GetVersion, version_pb.VersionRequest())).version

    @property
    def _user(self) -> UserServiceAsyncStub:
        return UserServiceStub(self._connection)

    @property
    def _connection(self) -> aio.Channel:
        """The single channel, created at the first call, whose event loop it belongs to."""
        files = self._tls() if self._tls else None
        if self._channel is not None and files is not self._used:
            self._end(self._channel)
            self._channel = None
        if self._channel is None:
            self._used = files
            if files is None:
                self._channel = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
            else:
                credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.certificate)
                self._channel = grpc.aio.secure_channel(self.address, credentials, options=_OPTIONS)
        return self._channel

    def _end(self, channel: aio.Channel) -> None:
        """Close a connection once its calls have ended."""
        task = asyncio.create_task(channel.close(self._deadline_seconds))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _call(
        self, method: aio.UnaryUnaryMultiCallable[_Question, _Answer], question: _Question
    ) -> _Answer:
        try:
            ours = self._credentials() if self._credentials else None
            metadata = ours.metadata if ours else None
            return await method(question, timeout=self._deadline_seconds, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            message = error.details() or error.code().name
            raise error_of(error.code(), f"{self.address}: {message}") from error


class AdminClient(VipuClient):
    """The admin API of one controller of ours; errors and connection as of VipuClient."""

    async def ask(self, method: str, question: Message) -> Any:
        """Call a method of a service of the admin port by its name; return the whole message."""
        services = (
            AdminServiceStub,
            FleetServiceStub,
            DiagnosticsServiceStub,
            UserAdminServiceStub,
            UserServiceStub,  # the last: the first has methods of the same names
        )
        stubs = (make(self._connection) for make in services)
        call = next(getattr(stub, method) for stub in stubs if hasattr(stub, method))
        return await self._call(call, question)

    async def version(self) -> str:
        """The version of the controller."""
        server: admin_pb.Server = await self.ask("GetServer", admin_pb.GetServerRequest())
        return server.version
