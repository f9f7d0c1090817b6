"""The estimated location of IPUs whose controller does not report it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.vipu.places import with_places
from partitions.vipu.server.machines import ipu_attributes
from partitions.vipu.topology import (
    IpuId,
    count_fitting,
    fleet_of_parts,
    free_blocks,
    place,
    topology_from_attributes,
)
from partitions.vipu.types import ReadyState, VipuPartition

if TYPE_CHECKING:
    from partitions.vipu.topology import Topology

PARTS = [("c", "a"), ("d", "b")]


def published(fleet: Topology) -> Topology:
    return topology_from_attributes(ipu_attributes(fleet, [], published_only=True))


def held(name: str, ipus: tuple[IpuId, ...], fleet: Topology) -> VipuPartition:
    first = fleet.by_id[ipus[0]]
    return VipuPartition(name, len(ipus), ipus, ReadyState.ACTIVE, first.cluster, first.allocation)


@settings(deadline=None)
@given(sizes=st.lists(st.sampled_from([1, 2, 4, 8, 16]), max_size=12), parts=st.integers(1, 2))
def test_what_is_free_is_counted_right_whatever_is_said(sizes: list[int], parts: int) -> None:
    fleet = fleet_of_parts(4, 4, PARTS[:parts])
    partitions: list[VipuPartition] = []
    for number, size in enumerate(sizes):
        used = [ipu for one in partitions for ipu in one.ipus]
        ipus = place(fleet, used, size)
        if ipus is not None:
            partitions.append(held(f"p{number}", ipus, fleet))
    used = [ipu for one in partitions for ipu in one.ipus]
    guess = with_places(published(fleet), partitions)
    assert len(guess) == len(fleet)
    assert sum(block.size for block in free_blocks(guess, used)) == len(fleet) - len(used)
    if parts == 1 or {ipu.cluster for ipu in used} == {"c", "d"}:
        for size in (1, 2, 4, 8, 16):
            assert count_fitting(free_blocks(guess, used), size) == count_fitting(
                free_blocks(fleet, used), size
            )


def test_an_ipu_of_an_unknown_allocation_or_cluster_is_left_out_of_none() -> None:
    fleet = fleet_of_parts(4, 4, PARTS)
    ipus = place(fleet, [], 8)
    assert ipus is not None
    guess = with_places(published(fleet), [held("p", ipus, fleet)])  # in cluster c, allocation a
    assert len(guess.only(allocation="b")) == 24
    assert len(guess.only(cluster="d")) == 24
    assert len(guess.only(allocation="a")) == 32
    assert len(fleet.only(allocation="b")) == 16


def test_the_domain_that_is_named_is_filled_first() -> None:
    fleet = published(fleet_of_parts(16, 4, [("c", "a")]))
    second = tuple(IpuId(1, n, "c") for n in range(8))
    guess = with_places(fleet, [VipuPartition("p", 8, second, ReadyState.ACTIVE, "c", "a")])
    assert guess.domains == (("c", 1),)
    assert count_fitting(free_blocks(guess, second), 32) == 1


def test_partitions_of_more_ipus_than_a_user_sees_are_counted_all_the_same() -> None:
    fleet = published(fleet_of_parts(1, 4, [("c", "a")]))
    ipus = tuple(IpuId(0, n, "c") for n in range(8))
    guess = with_places(fleet, [VipuPartition("p", 8, ipus, ReadyState.ACTIVE, "c", "a")])
    assert len(guess) == 8
    assert free_blocks(guess, ipus) == ()


@pytest.mark.parametrize("clusters", [["c"], ["c", "d"]])
def test_places_without_a_cluster_are_of_the_one_that_partitions_name(clusters: list[str]) -> None:
    fleet = fleet_of_parts(4, 4, [("", "")])
    ipus = [tuple(IpuId(0, n, cluster) for n in range(4)) for cluster in clusters]
    partitions = [VipuPartition(one[0].cluster, 4, one, ReadyState.ACTIVE) for one in ipus]
    found = with_places(fleet, partitions)
    assert found.is_guess is (len(clusters) > 1)
    assert {cluster for cluster, _ in found.domains} == set(clusters)
    used = [ipu for one in ipus for ipu in one]
    assert sum(block.size for block in free_blocks(found, used)) == 16 - len(used)


def test_what_is_told_whole_stays_as_it_is() -> None:
    fleet = fleet_of_parts(4, 4, PARTS)
    elsewhere = VipuPartition("p", 1, (IpuId(9, 9, "x"),), ReadyState.ACTIVE, "x", "y")
    assert with_places(fleet, [elsewhere]) is fleet
    some = replace(fleet, ipus=tuple(replace(ipu, allocation="") for ipu in fleet.ipus))
    ours = VipuPartition("p", 1, (IpuId(0, 0, "c"),), ReadyState.ACTIVE, "c", "y")
    assert with_places(some, [ours]).by_id[IpuId(0, 0, "c")].allocation == "y"
