"""The shape of the fleet: domains, order of agents, attributes of a controller."""

from __future__ import annotations

import pytest

from partitions.vipu.topology import (
    Hardware,
    Ipu,
    IpuId,
    Topology,
    size_problem,
    topology_from_attributes,
)
from tests.builders.fleets import fleet_of_machines


def test_sixteen_machines_of_four_fill_one_domain_and_the_next_starts_another() -> None:
    fleet = fleet_of_machines(17, cluster="c", allocation="a")
    assert len(fleet) == 68
    assert fleet.domains == (("c", 0), ("c", 1))
    last = IpuId(0, 63, "c")
    assert fleet.by_id[last] == Ipu(last, "ag15", 3, "c", "a")
    assert fleet.by_id[IpuId(1, 0, "c")].agent == "ag16"
    assert fleet.allocations == {"a": "c"}


@pytest.mark.parametrize(("machines", "ipus"), [(0, 4), (2, 3), (2, 128), (-1, 4)])
def test_an_impossible_fleet_is_refused_with_a_sentence(machines: int, ipus: int) -> None:
    with pytest.raises(ValueError, match="IPU-Machine"):
        fleet_of_machines(machines, ipus)


def test_stated_places_are_taken_with_cluster_and_allocation() -> None:
    fleet = topology_from_attributes(
        {
            "ag0": {
                0: {
                    "ipulink domain": "1",
                    "topology id": "7",
                    "cluster": "c",
                    "allocation": "a",
                    "board type": "M2000",
                }
            }
        }
    )
    made_of = Hardware("M2000")
    assert fleet.ipus == (Ipu(IpuId(1, 7, "c"), "ag0", 0, "c", "a", hardware=made_of),)


@pytest.mark.parametrize(
    "places",
    [
        {"ag2": {}, "ag10": {}},
        {"ag2": {"ipulink domain": "3", "topology id": "9"}, "ag10": {}},
        {"ag2": {"ipulink domain": "x", "topology id": "9"}, "ag10": {}},
        {
            "ag2": {"ipulink domain": "0", "topology id": "0"},
            "ag10": {"ipulink domain": "0", "topology id": "0"},
        },
        {
            "ag2": {"ipulink domain": "0", "topology id": "64"},
            "ag10": {"ipulink domain": "0", "topology id": "1"},
        },
    ],
)
def test_without_sound_places_the_ipus_count_in_agent_order(
    places: dict[str, dict[str, str]],
) -> None:
    fleet = topology_from_attributes({agent: {0: found} for agent, found in places.items()})
    assert [(ipu.agent, ipu.id) for ipu in fleet.ipus] == [
        ("ag2", IpuId(0, 0)),
        ("ag10", IpuId(0, 1)),
    ]


def test_a_fleet_without_ipus_is_an_empty_topology() -> None:
    assert len(topology_from_attributes({})) == 0
    assert Topology(()).domains == ()


def test_two_ipus_at_one_address_are_refused() -> None:
    with pytest.raises(ValueError, match="same IPU-Link domain"):
        Topology((Ipu(IpuId(0, 0), "ag0", 0), Ipu(IpuId(0, 0), "ag1", 0)))


@pytest.mark.parametrize(
    ("size", "want"),
    [
        (1, ""),
        (64, ""),
        (0, "at least 1 IPU, not 0"),
        (-4, "at least 1 IPU"),
        (3, "2 or 4, not 3"),
        (48, "32 or 64, not 48"),
        (65, "at most 64 IPUs"),
        (128, "128 would span several"),
    ],
)
def test_a_bad_size_is_refused_with_the_nearest_good_ones(size: int, want: str) -> None:
    problem = size_problem(size)
    assert want in problem
    assert bool(problem) is bool(want)
