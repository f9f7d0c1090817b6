"""io: the V-IPU user API over gRPC: translates messages to controller calls and back."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

from concurrent.futures import CancelledError
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from grpc import StatusCode

from partitions.vipu import wire
from partitions.vipu.client import ACCESS_KEY, USER_ID
from partitions.vipu.codes import code_of, details_of
from partitions.vipu.errors import Unauthenticated, VipuError
from partitions.vipu.protos import vipu_user_pb2 as pb
from partitions.vipu.protos import vipu_version_pb2 as version_pb
from partitions.vipu.protos.vipu_user_pb2_grpc import UserServiceServicer
from partitions.vipu.protos.vipu_version_pb2_grpc import VersionServiceServicer
from partitions.vipu.server.machines import IPUOF_VERSION
from partitions.vipu.server.records import MAX_AUTO_RESETS, PartitionRecord
from partitions.vipu.server.users import EVERYTHING, identify
from partitions.vipu.types import ReadyState, VipuStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc import ServicerContext

    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.users import Caller

log = structlog.get_logger(__name__)

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")

# What a list said of each partition, and of which record and state that was made.
_Listed = dict[str, tuple[PartitionRecord, ReadyState, pb.Partition]]


def answering(
    method: Callable[[Any, _Question], _Answer],
) -> Callable[[Any, _Question, ServicerContext], _Answer]:
    """Turn a VipuError into its gRPC status, with the message as details."""

    @wraps(method)
    def answer(self: Any, request: _Question, context: ServicerContext) -> _Answer:
        return _answered(context, method.__name__, lambda: method(self, request))

    return answer


def answering_caller(
    method: Callable[[Any, _Question, Caller], _Answer],
) -> Callable[[Any, _Question, ServicerContext], _Answer]:
    """The same for methods that answer each caller differently: `caller_of` says who it is."""

    @wraps(method)
    def answer(self: Any, request: _Question, context: ServicerContext) -> _Answer:
        return _answered(
            context, method.__name__, lambda: method(self, request, self.caller_of(context))
        )

    return answer


def _answered(context: ServicerContext, name: str, call: Callable[[], _Answer]) -> _Answer:
    try:
        return call()
    except VipuError as error:
        context.abort(code_of(error), details_of(error))
    except CancelledError:
        context.abort(StatusCode.UNAVAILABLE, "vipu-server is being stopped")
    # The outermost frame of a call: gRPC would answer with the bare words of the exception.
    except Exception:
        log.exception("call failed", method=name)
        context.abort(
            StatusCode.INTERNAL, "internal error of the controller; its log has the details"
        )


def everybody(context: ServicerContext) -> Caller:
    """In the insecure mode every caller may do everything."""
    del context
    return EVERYTHING


def by_access_key(controller: Controller) -> Callable[[ServicerContext], Caller]:
    """In the secure mode a call names its user and shows the key."""

    def caller_of(context: ServicerContext) -> Caller:
        given = dict(context.invocation_metadata() or ())
        user_id, key = (str(given.get(name, "")) for name in (USER_ID, ACCESS_KEY))
        if not user_id or not key:
            raise Unauthenticated(
                "this controller asks for a user id and an access key: give --api-user-id and "
                "--api-access-key, or set VIPU_CLI_API_USER_ID and VIPU_CLI_API_ACCESS_KEY"
            )
        return identify(controller.state, user_id, key)

    return caller_of


class UserService(UserServiceServicer):
    """The calls of V-IPU's users; with `published_only` IPUs do not say where they stand."""

    def __init__(
        self,
        controller: Controller,
        *,
        published_only: bool = False,
        caller_of: Callable[[ServicerContext], Caller] = everybody,
    ) -> None:
        self._controller = controller
        self._published_only = published_only
        self.caller_of = caller_of
        self._listed: dict[str, _Listed] = {}

    @answering_caller
    def CreatePartition(
        self, request: pb.CreatePartitionRequest, caller: Caller
    ) -> pb.CreatePartitionReply:
        """Reserve IPUs and answer with the id, without waiting for ACTIVE."""
        record = self._controller.create(wire.request_from_message(request), caller)
        return pb.CreatePartitionReply(partition_id=record.id)

    @answering_caller
    def GetPartitionStatus(
        self, request: pb.GetPartitionStatusRequest, caller: Caller
    ) -> pb.GetPartitionStatusReply:
        """Answer with the state at this moment."""
        record = self._controller.get(request.partition_id, caller)
        return pb.GetPartitionStatusReply(status=wire.status_to_message(self._status(record)))

    @answering_caller
    def ResetPartition(
        self, request: pb.ResetPartitionRequest, caller: Caller
    ) -> pb.ResetPartitionReply:
        """Begin a reset; a partition that is still being created is not interrupted."""
        moves = request.relocatable
        self._controller.reset(request.partition_id, caller, relocatable=moves)
        return pb.ResetPartitionReply()

    @answering_caller
    def RemovePartition(
        self, request: pb.RemovePartitionRequest, caller: Caller
    ) -> pb.RemovePartitionReply:
        """Begin to remove a partition; `force` does not wait for its machines."""
        self._controller.remove(request.partition_id, caller, force=request.force)
        return pb.RemovePartitionReply()

    @answering_caller
    def ListPartitions(
        self, request: pb.ListPartitionsRequest, caller: Caller
    ) -> pb.ListPartitionsReply:
        """Answer with all partitions, or the partitions of one allocation."""
        now = self._controller.clock()
        known, listed = self._listed.get(caller.name, {}), _Listed()
        for record in self._controller.list(request.allocation_id, caller):
            state, last = record.ready_state(now), known.get(record.id)
            # Lists are requested all the time, and most of a list equals the list before.
            if last is None or last[0] is not record or last[1] is not state:
                last = (record, state, _listed(record, state))
            listed[record.id] = last
        if not caller.partition:  # of users there are few
            self._listed[caller.name] = listed
        return pb.ListPartitionsReply(partitions=[message for *_, message in listed.values()])

    @answering_caller
    def GetPartitionIpuofConfig(
        self, request: pb.GetPartitionIpuofConfigRequest, caller: Caller
    ) -> pb.GetPartitionIpuofConfigReply:
        """Answer with the addresses of the devices, of one GCD or of all."""
        gcd = request.gcd_id.id if request.HasField("gcd_id") else None
        config = self._controller.ipuof_config(request.partition_id, gcd, caller)
        return pb.GetPartitionIpuofConfigReply(ipuof_config=wire.config_to_message(config))

    @answering_caller
    def ListIPUAttributes(
        self, request: pb.ListIPUAttributesRequest, caller: Caller
    ) -> pb.ListIPUAttributesReply:
        """Answer with what is known of each IPU, of some agents or of all."""
        published_only = self._published_only
        found = self._controller.attributes(
            request.agents, published_only=published_only, caller=caller
        )
        return wire.attributes_to_message(found)

    def _status(self, record: PartitionRecord) -> VipuStatus:
        now = self._controller.clock()
        return VipuStatus(
            id=record.id,
            ready_state=record.ready_state(now),
            operation_state=record.operation_state(now),
            errors=record.errors,
            max_auto_resets=MAX_AUTO_RESETS if record.auto_reset or record.auto_resets else 0,
            auto_resets=record.auto_resets,
            last_auto_reset=record.auto_reset_at,
        )


class VersionService(VersionServiceServicer):
    """The version of the server."""

    def __init__(self, version: str) -> None:
        self._version = version

    def GetVersion(
        self, request: version_pb.VersionRequest, context: ServicerContext
    ) -> version_pb.VersionReply:
        """Answer with the version of this software."""
        del request, context
        return version_pb.VersionReply(version=self._version)


def _listed(record: PartitionRecord, state: ReadyState) -> pb.Partition:
    return pb.Partition(
        id=record.id,
        ready_state=pb.PartitionReadyState.Value(f"PS_{state}"),
        ipuof_server_version=IPUOF_VERSION,
        spec=pb.PartitionSpec(
            cluster_id=record.cluster,
            allocation_id=record.allocation,
            ipus=wire.ipus_to_messages(record.ipus),
            ipulink_routing_type=pb.IpuLinkRoutingType.Value(f"IRT_{record.routing}"),
            sync_type=pb.SyncType.Value(f"ST_{record.sync_type}"),
            num_gcds=record.num_gcds,
            num_replicas=record.num_replicas,
            num_ipulink_segments=1,
            gw_routing_type=pb.GatewayRoutingType.Value(f"GRT_{record.gateway_routing}"),
            reconfigurable=record.reconfigurable,
        ),
    )
