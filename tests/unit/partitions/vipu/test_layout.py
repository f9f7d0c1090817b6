"""Clusters and allocations: members, places of IPUs, rejected changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.proxy.controllers import ControllerView, parse_controllers
from partitions.proxy.fleetmap import fleet_to_json
from partitions.vipu.errors import AlreadyExists, InvalidRequest, NotFound, NotReady
from partitions.vipu.server.layout import (
    Allocation,
    Cluster,
    Layout,
    LinkTopology,
    WantedCluster,
    ipus_of,
    layout_from_json,
    layout_of,
    layout_to_json,
    topology_of,
    with_allocation,
    with_cluster,
    without_allocation,
    without_cluster,
)
from partitions.vipu.topology import fleet_of_parts

AGENTS = {f"ag{number}": 4 for number in range(8)}
PAIR = WantedCluster("c1", ("ag0", "ag1"))


@given(
    machines=st.integers(1, 40),
    ipus=st.sampled_from([1, 4, 16]),
    parts=st.lists(st.sampled_from("xyz"), min_size=1, max_size=4),
)
def test_the_layout_of_the_options_is_their_fleet(
    machines: int, ipus: int, parts: list[str]
) -> None:
    fleet = fleet_of_parts(machines, ipus, [(name, str(n)) for n, name in enumerate(parts)])
    assert topology_of(layout_of(fleet), ipus_of(fleet)).ipus == fleet.ipus


def test_agents_stand_as_they_are_named_and_others_are_nobodys() -> None:
    layout = with_cluster(Layout(), WantedCluster("c1", ("ag5", "ag2"), LinkTopology.MESH), AGENTS)
    layout = with_allocation(layout, Allocation("team", "c1", ("ag2",)))
    placed = {
        ipu.agent: (ipu.cluster, ipu.id.position, ipu.allocation)
        for ipu in topology_of(layout, AGENTS).ipus
        if ipu.index == 0
    }
    assert placed["ag5"] == ("c1", 0, "")
    assert placed["ag2"] == ("c1", 4, "team")
    assert placed["ag0"] == ("", 0, "")
    assert layout.why_closed("ag5") == "ag5 is in no allocation"
    assert layout.why_closed("ag2") == ""
    assert layout.meshes == {"c1"}


def test_agents_are_divided_among_domains() -> None:
    wanted = WantedCluster("c1", tuple(AGENTS), domains=2)
    (cluster,) = with_cluster(Layout(), wanted, AGENTS).clusters.values()
    assert cluster.domains == (("ag0", "ag1", "ag2", "ag3"), ("ag4", "ag5", "ag6", "ag7"))
    many = {f"ag{number}": 16 for number in range(9)}
    (cluster,) = with_cluster(Layout(), WantedCluster("c1", tuple(many)), many).clusters.values()
    assert [len(agents) for agents in cluster.domains] == [4, 4, 1]
    for domains, says in ((2, "does not divide the 9"), (1, "at most 64 IPUs, not the 144")):
        with pytest.raises(InvalidRequest, match=f"num_ipulink_domains {domains}.*{says}"):
            with_cluster(Layout(), WantedCluster("c1", tuple(many), domains=domains), many)


@pytest.mark.parametrize(
    ("wanted", "kind", "says"),
    [
        (WantedCluster("c 2", ("ag2",)), InvalidRequest, "cluster_id 'c 2': write 1 to 63"),
        (WantedCluster("c" * 999, ("ag2",)), InvalidRequest, "cluster_id of 999 characters"),
        (WantedCluster("c2", ()), InvalidRequest, "agent_ids: name at least one"),
        (WantedCluster("c2", ("ag2", "ag2")), InvalidRequest, "each agent once"),
        (
            WantedCluster("c2", ("ag9",)),
            InvalidRequest,
            "no agent 'ag9' here; use ag0 to",
        ),
        (WantedCluster("c2", ("ag2", "ag1")), NotReady, "ag1 is in cluster c1"),
        (WantedCluster("c1", ("ag2",)), AlreadyExists, "exists already"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_with_the_field(
    wanted: WantedCluster, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        with_cluster(with_cluster(Layout(), PAIR, AGENTS), wanted, AGENTS)


@pytest.mark.parametrize(
    ("wanted", "kind", "says"),
    [
        (Allocation("-", "c1", ()), InvalidRequest, "allocation_id '-'"),
        (Allocation("b", "c9", ()), NotFound, "no cluster 'c9'"),
        (Allocation("b", "c1", ("ag2",)), InvalidRequest, "no agent 'ag2' here"),
        (Allocation("b", "c1", ("ag0",)), NotReady, "ag0 is in allocation a"),
        (Allocation("a", "c1", ("ag1",)), AlreadyExists, "exists already"),
    ],
)
def test_an_allocation_that_cannot_be_is_refused_with_the_field(
    wanted: Allocation, kind: type[Exception], says: str
) -> None:
    layout = with_cluster(Layout(), PAIR, AGENTS)
    with pytest.raises(kind, match=says):
        with_allocation(with_allocation(layout, Allocation("a", "c1", ("ag0",))), wanted)


def test_what_is_in_use_stays() -> None:
    layout = with_allocation(with_cluster(Layout(), PAIR, AGENTS), Allocation("a", "c1", ()))
    assert layout.allocations["a"].agents == ("ag0", "ag1")
    with pytest.raises(NotReady, match="all agents of cluster c1 are in an allocation"):
        with_allocation(layout, Allocation("b", "c1", ()))
    with pytest.raises(NotReady, match="c1 has the allocations a: remove these"):
        without_cluster(layout, "c1")
    with pytest.raises(NotReady, match=r"a has 6 partitions \(p0, p1, p2, p3, p4, \.\.\.\)"):
        without_allocation(layout, "a", [f"p{number}" for number in range(6)])
    empty = without_cluster(without_allocation(layout, "a", []), "c1")
    assert (dict(empty.clusters), dict(empty.allocations)) == ({}, {})


def test_a_layout_is_read_as_it_was_written() -> None:
    wanted = WantedCluster("c1", ("ag3", "ag1"), LinkTopology.MESH, looped=True, domains=2)
    layout = with_allocation(with_cluster(Layout(), wanted, AGENTS), Allocation("a", "c1", ()))
    assert layout_from_json(layout_to_json(layout)) == layout


def test_the_fleet_is_told_in_the_order_of_its_ipu_links_not_of_its_agents_names() -> None:
    layout = Layout({"c": Cluster("c", (("ag5", "ag2"), ("ag4",)))})
    ipus = {"ag2": 2, "ag4": 2, "ag5": 2}
    (spec,) = parse_controllers("v1:8090:vipu-ctrl=v1")
    fleet = fleet_to_json([ControllerView(spec, topology_of(layout, ipus))], [], [])
    machines = fleet["controllers"][0]["machines"]
    assert [(one["agent"], one["domain"]) for one in machines] == [
        ("ag5", 0),
        ("ag2", 0),
        ("ag4", 1),
    ]
