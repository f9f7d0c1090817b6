"""The room that partitions leave which are reserved and which no list shows yet."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipuhub.partition import Phase, Reason
from partitions.proxy.controllers import ControllerSpec, ControllerView, PartitionSettings
from partitions.proxy.drift import scope_of_settings
from partitions.proxy.queue import has_block_left
from partitions.vipu.topology import Block, Topology, place
from partitions.vipu.types import ReadyState, VipuPartition
from tests.builders.fleets import fleet_of_machines
from tests.builders.trackerentries import entry

if TYPE_CHECKING:
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.vipu.topology import IpuId

FLEET = fleet_of_machines(4)
IPUS = frozenset(ipu.id for ipu in FLEET.ipus)
AT = "v1:8090"
SETTINGS = PartitionSettings(cluster_id="c", allocation_id="a")
sizes = st.sampled_from((1, 2, 4, 8, 16))


def view(used: frozenset[IpuId], *, is_guess: bool = False) -> ControllerView:
    """A controller on which each of the IPUs in use is a partition."""
    held = tuple(
        VipuPartition(f"p-{n}", 1, (ipu,), ReadyState.ACTIVE) for n, ipu in enumerate(sorted(used))
    )
    fleet = Topology(FLEET.ipus, is_guess=is_guess)
    return ControllerView(ControllerSpec(AT, "a=b"), fleet, held)


def coming(number: int, size: int, **given: object) -> TrackerEntry:
    return entry(number, **{"size": size, "controller": AT, "phase": Phase.RESERVING} | given)


def blocks(used: frozenset[IpuId], size: int) -> list[frozenset[IpuId]]:
    """Every aligned block of so many free IPUs."""
    starts = range(0, len(IPUS), size)
    found = (frozenset(Block(size, 0, start).ipus()) for start in starts)
    return [block for block in found if not block & used]


@cache
def left_by_the_allocator(used: frozenset[IpuId], reserved: tuple[int, ...], size: int) -> bool:
    """Return whether `size` fits after the others in some order; who does not fit is refused."""
    if not reserved:
        return place(FLEET, used, size) is not None
    rest = (reserved[:n] + reserved[n + 1 :] for n in range(len(reserved)))
    return any(
        left_by_the_allocator(used.union(place(FLEET, used, made) or ()), others, size)
        for made, others in zip(reserved, rest, strict=True)
    )


@cache
def left_anywhere(used: frozenset[IpuId], reserved: tuple[int, ...], size: int) -> bool:
    """Return whether there are places for all the others that leave one for `size`."""
    if not reserved:
        return bool(blocks(used, size))
    return any(left_anywhere(used | at, reserved[1:], size) for at in blocks(used, reserved[0]))


@settings(deadline=None, max_examples=100)  # a busy machine is no failure
@given(
    used=st.sets(st.sampled_from(sorted(IPUS)), max_size=14),
    reserved=st.lists(sizes, max_size=4),
    size=sizes,
)
def test_a_creation_is_sent_where_it_can_succeed_in_some_order_and_nowhere_else(
    used: set[IpuId], reserved: list[int], size: int
) -> None:
    entries = [coming(n, other) for n, other in enumerate(reserved)]
    at, guessed = view(frozenset(used)), view(frozenset(used), is_guess=True)
    is_sent = at.may_take(size) and has_block_left(at, size, entries)
    arguments = (frozenset(used), tuple(sorted(reserved)), size)
    assert is_sent == left_by_the_allocator(*arguments)
    assert is_sent or not left_anywhere(*arguments)  # another allocator has no more room
    assert has_block_left(guessed, size, entries) or not is_sent


def test_where_only_the_number_of_ipus_is_known_equal_sizes_are_counted() -> None:
    guessed = view(frozenset(list(IPUS)[:4]), is_guess=True)
    assert has_block_left(guessed, 4, [coming(0, 4), coming(1, 4)])
    assert not has_block_left(guessed, 4, [coming(0, 4), coming(1, 4), coming(2, 4)])


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, False),
        ({"phase": Phase.CREATING}, False),
        ({"controller": "v2:8090"}, True),
        ({"reason": Reason.CONTROLLER_UNAVAILABLE}, True),
        ({"scope": scope_of_settings(PartitionSettings(cluster_id="other"))}, True),
        ({"id": "listed"}, True),
    ],
)
def test_counted_is_what_surely_gets_ipus_that_are_free_in_the_list(
    given: dict[str, object], want: bool
) -> None:
    fleet = fleet_of_machines(4, cluster="c", allocation="a")
    ipus = tuple(ipu.id for ipu in fleet.ipus[:8])
    listed = (VipuPartition("listed", 8, ipus, ReadyState.ACTIVE),)
    at = ControllerView(ControllerSpec(AT, "a=b", SETTINGS), fleet, listed)
    reserved = coming(0, 8, **{"scope": scope_of_settings(SETTINGS)} | given)
    assert has_block_left(at, 8, [reserved]) == want
