"""domain: the V-IPU controllers, their partitions, and the choice of a controller for the next
partition."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from partitions.errors import InvalidControllers
from partitions.proxy.circuit import Calls, CircuitFacts, CircuitState
from partitions.proxy.tracker import MAX_CONTROLLER_LENGTH
from partitions.vipu.topology import count_fitting, free_blocks, largest_block
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from partitions.vipu.topology import Block, IpuId, Topology
    from partitions.vipu.types import VipuPartition

_LABEL = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
    r"=(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_SHAPE = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*):(?P<port>[^:]*):(?P<label>.*)")
_CLOSED = CircuitFacts()
_EXAMPLE = "write host:port:label=value, for example pod001:8090:vipu-ctrl=pod001"


class PlacementRule(StrEnum):
    """The order in which controllers are tried."""

    FIRST_FIT = "first-fit"
    BEST_FIT = "best-fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """The settings of a controller's new partitions; empty or zero leaves the choice to V-IPU."""

    cluster_id: str = ""
    allocation_id: str = ""
    num_gcds: int = 0
    num_replicas: int = 0
    reconfigurable: bool = False


@dataclass(frozen=True, slots=True)
class ControllerSpec:
    """A V-IPU controller: its address, and the label of the nodes that reach its IPUs."""

    address: str
    label: str
    settings: PartitionSettings = PartitionSettings()


@dataclass(frozen=True)
class ControllerView:
    """The answer of one controller, `age_seconds` old; `problem` is why it did not answer.

    `has_node`: some node carries its label, so that pods can use its partitions. `refused_from` (0:
    none): the smallest size for which it had no room although its list indicated room. `version`:
    its release, empty if it does not say. Derived values are computed once, because many requests
    use one view.
    """

    spec: ControllerSpec
    topology: Topology | None = None
    partitions: tuple[VipuPartition, ...] = ()
    problem: str = ""
    has_node: bool = True
    refused_from: int = 0
    age_seconds: float = 0.0
    circuit: CircuitFacts = _CLOSED
    version: str = ""

    @cached_property
    def partition_ids(self) -> frozenset[str]:
        """Return the ids of all its partitions, also of other clients."""
        return frozenset(partition.id for partition in self.partitions)

    @cached_property
    def by_id(self) -> Mapping[str, VipuPartition]:
        """Return all its partitions by id."""
        return {partition.id: partition for partition in self.partitions}

    @property
    def is_reachable(self) -> bool:
        """Return whether it answered."""
        return self.topology is not None

    @cached_property
    def reach(self) -> Topology | None:
        """The part of the fleet that our partitions may have; None: it did not answer."""
        if self.topology is None:
            return None
        settings = self.spec.settings
        return self.topology.only(cluster=settings.cluster_id, allocation=settings.allocation_id)

    @cached_property
    def used(self) -> set[IpuId]:
        """Return the IPUs of all its partitions, including other clients' partitions."""
        return {ipu for partition in self.partitions for ipu in partition.ipus}

    @cached_property
    def closed(self) -> Collection[IpuId]:
        """Return the IPUs that get no new partition: cordoned, or with a fault."""
        return () if self.topology is None else self.topology.closed.keys()

    @cached_property
    def _taken(self) -> set[IpuId]:
        return self.used.union(self.closed)

    @cached_property
    def total(self) -> int:
        """IPUs that our partitions may have."""
        return 0 if self.reach is None else len(self.reach)

    @cached_property
    def free(self) -> int:
        """Return the number of IPUs that a new partition may have."""
        return sum(block.size for block in self.free_blocks)

    @cached_property
    def free_blocks(self) -> tuple[Block, ...]:
        """The largest blocks that a new partition may have, disjoint, by address."""
        return () if self.reach is None else free_blocks(self.reach, self._taken)

    @cached_property
    def faulty(self) -> int:
        """Return how many IPUs are in partitions in ERROR, or free and with a fault."""
        if self.reach is None:
            return 0
        broken = (
            partition for partition in self.partitions if partition.ready_state is ReadyState.ERROR
        )
        ipus = {ipu for partition in broken for ipu in partition.ipus}
        faults = {ipu.id for ipu in self.reach.closed.values() if ipu.fault} - self.used
        return len((ipus | faults) & self.reach.by_id.keys())

    @cached_property
    def cordoned(self) -> int:
        """Return the number of IPUs without a holder or fault that no job can get: their machine is
        cordoned, or no node has the controller's label."""
        if self.reach is None:
            return 0
        idle = {
            ipu.id
            for ipu in self.reach.closed.values()
            if not ipu.fault and ipu.id not in self.used
        }
        return len(idle) + (0 if self.has_node else self.free)

    @property
    def creates(self) -> bool:
        """Return whether creations are sent to it, as it answers them."""
        return self.circuit.of(Calls.CREATE).state is CircuitState.CLOSED

    @property
    def creates_none(self) -> str:
        """Return why creations are not sent to it."""
        return self.circuit.of(Calls.CREATE).failure

    @property
    def message(self) -> str:
        """Return why it does not answer, or which orders it does not answer; "" if all is well."""
        return self.problem or self.circuit.held_orders

    def fitting(self, size: int) -> int:
        """Return how many partitions of `size` fit now, all at once, as far as is known."""
        if self._has_refused(size) or not self.creates:
            return 0
        return count_fitting(self.free_blocks, size)

    def may_take(self, size: int) -> bool:
        """Return whether to ask for a partition of `size`: it fits, or only the controller knows,
        or the size would fit and a creation may try whether it answers them again."""
        if not self.creates:
            is_due = self.circuit.of(Calls.CREATE).is_due
            return is_due and replace(self, circuit=_CLOSED).may_take(size)
        if self.fitting(size) > 0:
            return True
        is_known = self.topology is None or not self.topology.is_guess
        return not is_known and self.free >= size and not self._has_refused(size)

    @cached_property
    def largest_block(self) -> int:
        """Return how many IPUs the largest partition could have on an empty controller."""
        return 0 if self.reach is None else largest_block(self.reach)

    def can_ever_take(self, size: int) -> bool:
        """Return whether a partition of `size` would fit on an empty controller."""
        return self.largest_block >= size

    def smallest_fitting_block(self, size: int) -> int:
        """Return the size of the smallest free block for a partition of `size`; 0: none."""
        return min((block.size for block in self.free_blocks if block.size >= size), default=0)

    def _has_refused(self, size: int) -> bool:
        """Return whether the controller knew better; where it says how its IPUs stand, so do we."""
        is_guess = self.topology is not None and self.topology.is_guess
        return is_guess and 0 < self.refused_from <= size


def parse_controllers(
    text: str, defaults: PartitionSettings = PartitionSettings()
) -> tuple[ControllerSpec, ...]:
    """Read `host:port:label=value`, separated by commas or lines; `#` begins a comment.

    `;cluster=`, `;allocation=`, `;gcds=`, `;replicas=` and `;reconfigurable=` behind a controller
    override `defaults` for it. Raises InvalidControllers with what to write instead.
    """
    lines = (line.partition("#")[0] for line in text.splitlines())
    parts = (part.strip() for line in lines for part in line.split(","))
    specs = tuple(_parse_one(part, defaults) for part in parts if part)
    addresses = [spec.address for spec in specs]
    twice = sorted({address for address in addresses if addresses.count(address) > 1})
    if twice:
        raise InvalidControllers(
            f"V-IPU controller {twice[0]} is in the list twice: remove one entry"
        )
    return specs


def order_candidates(
    views: Sequence[ControllerView], size: int, rule: PlacementRule
) -> list[ControllerView]:
    """The controllers that may have room for a partition of `size`, in the order to try them."""
    candidates = [view for view in views if view.has_node and view.may_take(size)]
    if rule is PlacementRule.BEST_FIT:
        candidates.sort(key=lambda view: view.smallest_fitting_block(size))
    # Last those that have no room, or do not answer creations, as far as we know.
    return sorted(candidates, key=lambda view: view.fitting(size) == 0)


def _parse_one(text: str, defaults: PartitionSettings) -> ControllerSpec:
    head, *options = (part.strip() for part in text.split(";"))
    found = _SHAPE.fullmatch(head)
    if found is None:
        raise InvalidControllers(f"V-IPU controller {head!r}: {_EXAMPLE}")
    host, port, label = found["host"], found["port"], found["label"]
    if not _HOST.fullmatch(host):
        raise InvalidControllers(
            f"V-IPU controller {head!r}: {host!r} is not a host name; {_EXAMPLE}"
        )
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidControllers(
            f"V-IPU controller {head!r}: {port!r} is not a port (1 to 65535); {_EXAMPLE}"
        )
    if not _LABEL.fullmatch(label):
        raise InvalidControllers(
            f"V-IPU controller {head!r}: {label!r} is not a node label (label=value); {_EXAMPLE}"
        )
    address = f"{host}:{int(port)}"
    if len(address) + len(label) > MAX_CONTROLLER_LENGTH:
        raise InvalidControllers(
            f"V-IPU controller {head!r}: at most {MAX_CONTROLLER_LENGTH} characters, so that the "
            "tracker can hold it; use a shorter host name or label"
        )
    return ControllerSpec(address, label, _parse_options(address, options, defaults))


def _parse_options(
    address: str, options: Sequence[str], defaults: PartitionSettings
) -> PartitionSettings:
    given = dict(_split_option(address, option) for option in options if option)
    return PartitionSettings(
        cluster_id=given.get("cluster", defaults.cluster_id),
        allocation_id=given.get("allocation", defaults.allocation_id),
        num_gcds=_number(address, given, "gcds", defaults.num_gcds),
        num_replicas=_number(address, given, "replicas", defaults.num_replicas),
        reconfigurable=_switch(address, given, defaults.reconfigurable),
    )


def _split_option(address: str, option: str) -> tuple[str, str]:
    known = ("cluster", "allocation", "gcds", "replicas", "reconfigurable")
    key, equals, value = option.partition("=")
    if not equals or key not in known:
        raise InvalidControllers(
            f"V-IPU controller {address}: {option!r} is not an option; valid options: "
            + ", ".join(f"{name}=" for name in known)
        )
    return key, value


def _number(address: str, given: Mapping[str, str], key: str, default: int) -> int:
    text = given.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise InvalidControllers(f"V-IPU controller {address}: {key}={text}: write a whole number")
    return int(text)


def _switch(address: str, given: Mapping[str, str], default: bool) -> bool:
    text = given.get("reconfigurable")
    if text is None:
        return default
    if text not in {"on", "off"}:
        raise InvalidControllers(
            f"V-IPU controller {address}: reconfigurable={text}: write on or off"
        )
    return text == "on"
