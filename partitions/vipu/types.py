"""domain: the values of the V-IPU user API, without gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from partitions.vipu.topology import IpuId


class ReadyState(StrEnum):
    """The readiness of a partition for programs."""

    UNDEFINED = "UNDEFINED"
    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    REMOVED = "REMOVED"
    ERROR = "ERROR"


class OperationState(StrEnum):
    """The operation under way on a partition."""

    UNDEFINED = "UNDEFINED"
    IDLE = "IDLE"
    CREATING = "CREATING"
    REMOVING = "REMOVING"
    RESETTING = "RESETTING"
    FAILED = "FAILED"


_BUSY = frozenset({OperationState.CREATING, OperationState.RESETTING, OperationState.REMOVING})


class IpuLinkRouting(StrEnum):
    """The use of the links inside an IPU-Link domain; UNDEFINED: the controller decides."""

    UNDEFINED = "UNDEFINED"
    DNC = "DNC"
    SWNC = "SWNC"
    BTNC = "BTNC"
    RINGSWNC = "RINGSWNC"


class GatewayRouting(StrEnum):
    """The use of the links between IPU-Link domains; UNDEFINED: not requested."""

    UNDEFINED = "UNDEFINED"
    RING = "RING"
    SWRING = "SWRING"


class SyncType(StrEnum):
    """The synchronisation of a partition's GCDs; UNDEFINED: the controller decides."""

    UNDEFINED = "UNDEFINED"
    GS2_DEFAULT = "GS2_DEFAULT"
    GS2_INDEPENDENT_RAILS = "GS2_INDEPENDENT_RAILS"
    POD_NATIVE_DEFAULT = "POD_NATIVE_DEFAULT"
    POD_NATIVE_REPLICATED_PIPELINE = "POD_NATIVE_REPLICATED_PIPELINE"


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """The properties of a new partition; zero, empty and UNDEFINED leave it to the controller.

    `size` counts IPUs; `num_replicas` counts over all GCDs. `ipus` requests exactly these, in the
    order of their routing ids, and needs `cluster_id`. Auto-reset and relocation are off by
    default, because pods hold partitions.
    """

    id: str
    size: int
    cluster_id: str = ""
    allocation_id: str = ""
    num_gcds: int = 0
    num_replicas: int = 0
    reconfigurable: bool = False
    routing: IpuLinkRouting = IpuLinkRouting.UNDEFINED
    sync_type: SyncType = SyncType.UNDEFINED
    num_ipulink_segments: int = 0
    ipus: tuple[IpuId, ...] = ()
    auto_reset: bool = False
    relocatable: bool = False
    gateway_routing: GatewayRouting = GatewayRouting.UNDEFINED


@dataclass(frozen=True, slots=True)
class VipuPartition:
    """One partition as a controller lists it; `ipus` in the order of their routing ids."""

    id: str
    size: int
    ipus: tuple[IpuId, ...]
    ready_state: ReadyState
    cluster_id: str = ""
    allocation_id: str = ""
    num_gcds: int = 1
    num_replicas: int = 1
    reconfigurable: bool = False


@dataclass(frozen=True, slots=True)
class VipuStatus:
    """The state of one partition; `errors` are sentences, empty unless `ready_state` is ERROR."""

    id: str
    ready_state: ReadyState
    operation_state: OperationState
    errors: tuple[str, ...] = ()
    max_auto_resets: int = 0
    auto_resets: int = 0
    last_auto_reset: datetime | None = None

    @property
    def is_usable(self) -> bool:
        """Return whether programs may open the partition: ACTIVE, and no reset under way."""
        return self.ready_state is ReadyState.ACTIVE and self.operation_state not in _BUSY

    @property
    def is_removing(self) -> bool:
        """Return whether the controller is removing the partition."""
        return self.operation_state is OperationState.REMOVING

    @property
    def is_faulty(self) -> bool:
        """Return whether the partition is of no use until it is reset; what is being removed never
        is."""
        failed = self.operation_state is OperationState.FAILED
        return failed or (self.ready_state is ReadyState.ERROR and not self.is_removing)


@dataclass(frozen=True, slots=True)
class IpuofDevice:
    """The network address of one IPU of a partition."""

    ip: str
    server_port: int
    rdma_port: int
    device_id: int
    ipulink_segment_id: int
    routing_id: int
    ipu_arch_id: int
    ipu_id: int
    chip_id: str
    gwsw_version: str
    ipum_sw_version: str


@dataclass(frozen=True, slots=True)
class Gcd:
    """The devices that one Poplar process drives."""

    devices: tuple[IpuofDevice, ...]
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IpuofConfig:
    """The configuration with which an IPU-over-Fabric client opens the devices of a partition."""

    routing: IpuLinkRouting
    sync_type: SyncType
    reconfigurable: bool
    num_ipulink_segments: int
    gcds: tuple[Gcd, ...]
    server_version: str
    gateway_routing: GatewayRouting = GatewayRouting.UNDEFINED
