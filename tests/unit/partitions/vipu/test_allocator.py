"""The buddy allocator: never overlapping, always aligned, honest about what fits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.vipu.topology import (
    PARTITION_SIZES,
    Block,
    Ipu,
    IpuId,
    Topology,
    count_fitting,
    free_blocks,
    is_buddy_block,
    place,
)
from tests.builders.fleets import fleet_of_machines

DEMO = fleet_of_machines(8)
RACKS = fleet_of_machines(21)  # one IPU-Link domain and a part of a second

sizes = st.sampled_from(PARTITION_SIZES)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("create"), sizes), st.tuples(st.just("remove"), st.integers(0, 99))
    ),
    max_size=60,
)
used_ipus = st.sets(st.sampled_from([ipu.id for ipu in RACKS.ipus]))


def two_allocations() -> Topology:
    """Machines 0 to 2 in one allocation, 3 to 7 in another, all in one domain."""
    return Topology(
        tuple(
            Ipu(ipu.id, ipu.agent, ipu.index, "c", "a" if int(ipu.agent[2:]) < 3 else "b")
            for ipu in DEMO.ipus
        )
    )


@settings(deadline=None)  # a busy machine is no failure
@given(history=histories)
def test_no_history_of_creates_and_removes_overlaps_or_leaves_the_alignment(
    history: list[tuple[str, int]],
) -> None:
    held: list[tuple[IpuId, ...]] = []
    for action, number in history:
        used = [ipu for ipus in held for ipu in ipus]
        if action == "remove" and held:
            held.pop(number % len(held))
        elif action == "create":
            fits = count_fitting(free_blocks(RACKS, used), number)
            got = place(RACKS, used, number)
            assert (got is None) == (fits == 0)
            if got is not None:
                assert not set(got) & set(used)
                assert len(got) == number
                assert is_buddy_block(RACKS, got)
                held.append(got)


@settings(deadline=None)  # a busy machine is no failure
@given(used=used_ipus, size=sizes)
def test_as_many_partitions_can_be_placed_as_count_fitting_says(
    used: set[IpuId], size: int
) -> None:
    want = count_fitting(free_blocks(RACKS, used), size)
    placed = 0
    while (got := place(RACKS, used, size)) is not None:
        used = used | set(got)
        placed += 1
    assert placed == want


def places_by_brute_force(fleet: Topology, used: set[IpuId], size: int) -> list[set[IpuId]]:
    """Every aligned run of `size` free IPUs in one cluster, IPU-Link domain and allocation."""
    by_place = {
        (ipu.cluster, ipu.id.domain, ipu.id.position): ipu
        for ipu in fleet.ipus
        if ipu.id not in used
    }
    found = []
    for cluster, domain in {(cluster, domain) for cluster, domain, _ in by_place}:
        for start in range(0, 64, size):
            run = [by_place.get((cluster, domain, start + offset)) for offset in range(size)]
            there = [ipu for ipu in run if ipu is not None]
            if len(there) == size and len({ipu.allocation for ipu in there}) == 1:
                found.append({ipu.id for ipu in there})
    return found


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Topology, set[IpuId]]:
    """Machines of 1 to 8 IPUs in two clusters, each in some allocation, and the IPUs in use."""
    machines, width = draw(st.integers(1, 24)), draw(st.sampled_from((1, 2, 4, 8)))
    ids = st.sampled_from("ab")
    ipus = [
        Ipu(IpuId(*divmod(first + index, 64), cluster), f"ag{number}", index, cluster, allocation)
        for cluster in draw(st.sampled_from((("c",), ("c", "d"))))
        for number, first in enumerate(range(0, machines * width, width))
        for allocation in (f"{cluster}-{draw(ids)}",)
        for index in range(width)
    ]
    fleet = Topology(tuple(ipus))
    density = draw(st.sampled_from((0.0, 0.1, 0.4, 0.8)))
    random = draw(st.randoms(use_true_random=False))
    return fleet, {ipu.id for ipu in fleet.ipus if random.random() < density}


@settings(deadline=None)  # a busy machine is no failure
@given(drawn=fleets(), size=sizes)
def test_what_fits_and_where_is_what_a_search_of_all_places_finds(
    drawn: tuple[Topology, set[IpuId]], size: int
) -> None:
    fleet, used = drawn
    possible = places_by_brute_force(fleet, used, size)
    assert count_fitting(free_blocks(fleet, used), size) == len(possible)
    got = place(fleet, used, size)
    assert set(got) in possible if got is not None else possible == []


@settings(deadline=None)  # a busy machine is no failure
@given(used=used_ipus)
def test_the_free_blocks_are_exactly_the_free_ipus_once_each(used: set[IpuId]) -> None:
    blocks = free_blocks(RACKS, used)
    ipus = [ipu for block in blocks for ipu in block.ipus()]
    assert len(ipus) == len(set(ipus))
    assert set(ipus) == {ipu.id for ipu in RACKS.ipus} - used


@settings(deadline=None)  # a busy machine is no failure
@given(used=used_ipus, size=sizes)
def test_best_fit_never_breaks_a_bigger_block_than_it_must(used: set[IpuId], size: int) -> None:
    got = place(RACKS, used, size)
    if got is None:
        return
    large_enough = [block.size for block in free_blocks(RACKS, used) if block.size >= size]
    source = next(block for block in free_blocks(RACKS, used) if got[0] in block.ipus())
    assert source.size == min(large_enough)


def test_a_hole_of_the_right_size_is_taken_before_the_large_block_is_broken() -> None:
    used = set(Block(4, 0, 0).ipus()) | set(Block(2, 0, 6).ipus())
    assert place(DEMO, used, 2) == Block(2, 0, 4).ipus()
    assert place(DEMO, used, 8) == Block(8, 0, 8).ipus()


def test_of_two_equal_holes_the_lower_address_is_taken() -> None:
    racks = fleet_of_machines(32)
    assert place(racks, [], 64) == Block(64, 0, 0).ipus()
    assert place(racks, Block(64, 0, 0).ipus(), 64) == Block(64, 1, 0).ipus()


@pytest.mark.parametrize(
    ("size", "want"),
    [(1, 32), (2, 16), (4, 8), (32, 1), (64, 0), (3, 0), (0, 0), (-2, 0), (128, 0)],
)
def test_an_empty_demo_fleet_fits(size: int, want: int) -> None:
    assert count_fitting(free_blocks(DEMO, []), size) == want
    assert (place(DEMO, [], size) is not None) is bool(want)


def test_after_the_sample_job_fourteen_pairs_fit_and_no_rack() -> None:
    used = place(DEMO, [], 4)
    assert used is not None
    assert count_fitting(free_blocks(DEMO, used), 2) == 14
    assert count_fitting(free_blocks(DEMO, used), 64) == 0


def test_scattered_free_ipus_do_not_make_a_partition() -> None:
    used = [ipu.id for ipu in DEMO.ipus if ipu.id.position % 2]
    assert count_fitting(free_blocks(DEMO, used), 1) == 16
    assert count_fitting(free_blocks(DEMO, used), 2) == 0
    assert place(DEMO, used, 2) is None


@pytest.mark.parametrize(("size", "want"), [(16, 1), (8, 3), (4, 8)])
def test_a_partition_never_spans_allocations(size: int, want: int) -> None:
    # Machines 0-2 | 3-7: the block of 8 at machines 2-3 and that of 16 at 0-3 cross the border.
    fleet = two_allocations()
    assert count_fitting(free_blocks(fleet, []), size) == want
    got = place(fleet, [], size)
    assert got is not None
    assert len({fleet.by_id[ipu].allocation for ipu in got}) == 1


def test_a_filter_to_an_allocation_places_only_there() -> None:
    fleet = two_allocations().only(allocation="b")
    assert place(fleet, [], 4) == Block(4, 0, 12).ipus()
    assert len(two_allocations().only(cluster="other")) == 0


@pytest.mark.parametrize(
    ("ipus", "want"),
    [
        (Block(4, 0, 4).ipus(), True),
        (Block(4, 0, 2).ipus(), False),
        (Block(4, 0, 4).ipus(3), False),
        ((IpuId(0, 0), IpuId(0, 2)), False),
        ((IpuId(0, 0), IpuId(0, 0)), False),
        (Block(4, 3, 0).ipus(), False),
        (Block(64, 0, 0).ipus(), False),  # the demo has half a domain
        ((), False),
    ],
)
def test_only_an_aligned_block_of_known_ipus_is_a_buddy_block(
    ipus: tuple[IpuId, ...], want: bool
) -> None:
    assert is_buddy_block(DEMO, ipus) is want


def test_a_block_across_allocations_is_no_buddy_block() -> None:
    assert not is_buddy_block(two_allocations(), Block(8, 0, 8).ipus())
