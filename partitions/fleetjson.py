"""domain: the shape of `/v1/fleet`, which the proxy writes, and the dashboard and recorders read.

Each key has the name that it has in the JSON. Keys that are `NotRequired` are absent where there
is nothing to say, or in an answer of an earlier proxy.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class HolderJson(TypedDict):
    """The job that holds a partition."""

    uid: str
    namespace: str
    name: str
    instance: int
    phase: str
    since: str | None


class PartitionJson(TypedDict):
    """A partition of a controller; `job` None: it was made by hand."""

    id: str
    size: int
    state: str
    job: HolderJson | None


class HardwareJson(TypedDict, total=False):
    """The components of a machine, or of an IPU that differs from its machine's others."""

    boardType: str
    boardSerial: str
    clock: str
    firmware: str
    software: str


class IpuJson(TypedDict):
    """An IPU. `device`: its number in the machine; `outside`: in a cluster or allocation from which
    jobs get no partition; `cordon` and `fault`: the reason why it gets no new partition; `agent`:
    its agent, if the map draws it beside IPUs of other machines."""

    position: int
    device: int
    partition: str | None
    cordon: NotRequired[str]
    fault: NotRequired[str]
    outside: NotRequired[bool]
    agent: NotRequired[str]
    hardware: NotRequired[HardwareJson]


class MachineJson(TypedDict):
    """An IPU-Machine; `agent` is empty where the controller names none."""

    agent: str
    cluster: str
    domain: int
    ipus: list[IpuJson]
    lost: NotRequired[str]
    hardware: NotRequired[HardwareJson]


class FreeBlockJson(TypedDict):
    """The number of free blocks of a size."""

    size: int
    count: int


class ControllerJson(TypedDict):
    """A V-IPU controller, with its machines in IPU-Link order."""

    address: str
    nodeSelector: dict[str, str]
    reachable: bool
    message: str
    version: NotRequired[str]
    unansweredOrders: NotRequired[str]
    ageSeconds: NotRequired[int]
    hasNode: bool
    placesKnown: bool
    largestBlock: int
    freeBlocks: NotRequired[list[FreeBlockJson]]
    machines: list[MachineJson]
    partitions: list[PartitionJson]


class BlockJson(TypedDict):
    """Adjacent IPUs of an IPU-Link domain."""

    controller: str
    cluster: str
    domain: int
    start: int
    size: int


class WantedJson(TypedDict):
    """`inTheWay`: IPUs of `block` that `blockers` hold; None where there is no such block."""

    inTheWay: int | None
    block: BlockJson | None
    blockers: list[str]


class PlaceJson(TypedDict):
    """A controller where a size fits, with the block that the next partition gets there where that
    is known."""

    controller: str
    count: int
    cluster: NotRequired[str]
    domain: NotRequired[int]
    start: NotRequired[int]
    size: NotRequired[int]


class FitJson(TypedDict):
    """The number of partitions of a size that fit, and their places; of a size that fits nowhere,
    the block that comes free first."""

    size: int
    count: int
    places: NotRequired[list[PlaceJson]]
    inTheWay: NotRequired[int | None]
    block: NotRequired[BlockJson | None]
    blockers: NotRequired[list[str]]


class WaiterJson(WantedJson):
    """A job in the queue. `heldBack`: an older job blocks it; `never`: why it can never fit, empty
    if it can."""

    uid: str
    instance: int
    size: int
    since: str | None
    heldBack: bool
    never: str


class FleetJson(TypedDict, total=False):
    """The answer; without keys: nothing has been read yet."""

    controllers: list[ControllerJson]
    fits: list[FitJson]
    queue: list[WaiterJson]
    outOfService: str
    reserveAfterSeconds: float
    stats: dict[str, Any]
