"""The IPUs that a request gets, for random histories and fleets with several allocations."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.vipu.errors import InvalidRequest, NoCapacity
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.requirements import choose_ipus, complete_request, routing_of
from partitions.vipu.topology import (
    PARTITION_SIZES,
    Ipu,
    IpuId,
    Topology,
    count_fitting,
    fleet_of_parts,
    free_blocks,
    is_buddy_block,
    place,
)
from partitions.vipu.types import CreateRequest, GatewayRouting, IpuLinkRouting, SyncType
from tests.builders.fleets import fleet_of_machines

# ag0 to ag5 in allocation a of cluster x, ag6 to ag19 in b of x, the rest in c of cluster y.
FLEET = Topology(
    tuple(
        Ipu(
            ipu.id,
            ipu.agent,
            ipu.index,
            "x" if int(ipu.agent[2:]) < 20 else "y",
            "a" if int(ipu.agent[2:]) < 6 else "b" if int(ipu.agent[2:]) < 20 else "c",
        )
        for ipu in fleet_of_machines(32).ipus
    )
)
WHOLE = fleet_of_parts(16, 4, [("x", "a"), ("y", "b")])
steps = st.lists(
    st.tuples(
        st.sampled_from(PARTITION_SIZES), st.sampled_from(["", "a", "b", "c"]), st.booleans()
    ),
    max_size=40,
)


@settings(deadline=None)  # a busy machine is no failure
@given(steps=steps)
def test_no_history_breaks_alignment_allocations_or_what_count_fitting_said(
    steps: list[tuple[int, str, bool]],
) -> None:
    held: dict[str, tuple[IpuId, ...]] = {}
    occupancy = Occupancy.of(FLEET)
    for number, (size, allocation, remove) in enumerate(steps):
        if remove and held:
            occupancy = occupancy.freed(held.pop(next(iter(held))))
        holders = {ipu for ipus in held.values() for ipu in ipus}
        part = FLEET.only(allocation=allocation)
        fits = count_fitting(free_blocks(part, holders), size)
        request = CreateRequest(f"p{number}", size, allocation_id=allocation)
        if not fits:
            free = len(part) - sum(ipu in part.by_id for ipu in holders)
            with pytest.raises(NoCapacity, match=f"{size} IPUs.*; {free} of {len(part)} are free"):
                choose_ipus(request, occupancy)
            continue
        got = choose_ipus(request, occupancy)
        assert is_buddy_block(FLEET, got)
        assert not holders & set(got)
        (where,) = {FLEET.by_id[ipu].allocation for ipu in got}
        assert allocation in ("", where)
        assert got == place(part, holders, size)
        held[request.id], occupancy = got, occupancy.taken(got, request.id)


def test_an_allocation_of_another_cluster_is_refused_with_both_named() -> None:
    request = CreateRequest("p", 4, cluster_id="y", allocation_id="a")
    with pytest.raises(
        InvalidRequest, match="'a' is in cluster 'x', not in 'y'; use 'x', or leave"
    ):
        choose_ipus(request, Occupancy.of(FLEET))


def test_a_cluster_alone_limits_where_a_partition_goes() -> None:
    got = choose_ipus(CreateRequest("p", 4, cluster_id="y"), Occupancy.of(FLEET))
    assert {FLEET.by_id[ipu].allocation for ipu in got} == {"c"}


def test_explicit_ipus_across_two_allocations_are_refused() -> None:
    ipus = tuple(IpuId(0, position) for position in range(16, 32))
    request = CreateRequest("p", 16, cluster_id="x", ipus=ipus)
    with pytest.raises(InvalidRequest, match="one allocation"):
        choose_ipus(request, Occupancy.of(FLEET))


@pytest.mark.parametrize(
    ("size", "routing", "want"),
    [
        (4, IpuLinkRouting.UNDEFINED, IpuLinkRouting.DNC),
        (64, IpuLinkRouting.UNDEFINED, IpuLinkRouting.RINGSWNC),
        (4, IpuLinkRouting.SWNC, IpuLinkRouting.SWNC),
    ],
)
def test_the_routing_is_chosen_where_none_is_asked_for(
    size: int, routing: IpuLinkRouting, want: IpuLinkRouting
) -> None:
    assert routing_of(CreateRequest("p", size, routing=routing), has_loops=True) is want


def test_a_mesh_has_no_loop_links() -> None:
    """A request that needs them goes to a torus, or is refused with the remedy."""
    whole = CreateRequest("p", 64)
    assert routing_of(whole, has_loops=False) is IpuLinkRouting.SWNC
    ring, occupancy = replace(whole, routing=IpuLinkRouting.RINGSWNC), Occupancy.of(WHOLE)
    assert choose_ipus(ring, occupancy, {"x"})[0].cluster == "y"
    for where in ({"cluster_id": "x"}, {"allocation_id": "a"}):
        with pytest.raises(InvalidRequest, match=r"cluster x does not have; use SWNC"):
            choose_ipus(replace(ring, **where), occupancy, {"x"})
    with pytest.raises(InvalidRequest, match="no cluster has"):
        choose_ipus(ring, occupancy, {"x", "y"})


def test_loop_links_need_a_whole_domain_and_gateway_links_several() -> None:
    with pytest.raises(InvalidRequest, match="ipulink_routing_type RINGSWNC .* 64 IPUs, not 32"):
        complete_request(CreateRequest("p", 32, routing=IpuLinkRouting.RINGSWNC))
    complete_request(CreateRequest("p", 64, routing=IpuLinkRouting.RINGSWNC))
    with pytest.raises(InvalidRequest, match="gw_routing_type RING: .* leave it out"):
        complete_request(CreateRequest("p", 64, gateway_routing=GatewayRouting.RING))


def test_a_partition_has_one_gcd_and_a_replica_each_unless_said_otherwise() -> None:
    settled = complete_request(CreateRequest("p", 8))
    assert (settled.num_gcds, settled.num_replicas) == (1, 1)
    assert settled.sync_type is SyncType.GS2_DEFAULT
    settled = complete_request(CreateRequest("p", 8, num_gcds=4, sync_type=SyncType.GS2_DEFAULT))
    assert (settled.num_gcds, settled.num_replicas) == (4, 4)


# The first that applies, by what was asked for: what the answer must name, and the remedy.
WANT_ROUTING = {
    ("BTNC", "any"): ("ipulink_routing_type BTNC", "use DNC or SWNC"),
    ("RINGSWNC", "part"): ("ipulink_routing_type RINGSWNC", "use SWNC"),
    ("RINGSWNC", "mesh"): ("ipulink_routing_type RINGSWNC", "use SWNC"),
}
WANT_SYNC = {
    ("GS2_INDEPENDENT_RAILS", False): ("sync_type GS2_INDEPENDENT_RAILS", "use GS2_DEFAULT"),
    ("GS2_INDEPENDENT_RAILS", True): ("sync_type GS2_INDEPENDENT_RAILS", "use GS2_DEFAULT"),
    ("POD_NATIVE_DEFAULT", False): ("sync_type POD_NATIVE_DEFAULT", "use GS2_DEFAULT"),
    ("POD_NATIVE_DEFAULT", True): ("sync_type POD_NATIVE_DEFAULT", "leave one of the two out"),
    ("POD_NATIVE_REPLICATED_PIPELINE", False): ("REPLICATED_PIPELINE", "use GS2_DEFAULT"),
    ("POD_NATIVE_REPLICATED_PIPELINE", True): ("PIPELINE", "leave one of the two out"),
}
WANT_DEFAULT = {"part": "DNC", "whole": "RINGSWNC", "mesh": "SWNC"}


def wanted(request: CreateRequest, cluster: str) -> tuple[str, str] | str:
    """Return the right result of a request: its routing, or the name in its refusal."""
    routing, sync = request.routing.value, request.sync_type.value
    where = "part" if request.size < 64 else "mesh" if cluster == "x" else "whole"
    early = WANT_ROUTING.get((routing, "any")) or (
        WANT_ROUTING.get((routing, where)) if where == "part" else None
    )
    refusal = early or WANT_SYNC.get((sync, request.reconfigurable))
    if refusal is None and request.size % (request.num_gcds or 1):
        refusal = (f"num_gcds {request.num_gcds}", f"at most {request.size}")
    refusal = refusal or WANT_ROUTING.get((routing, where))
    return refusal or (WANT_DEFAULT[where] if routing == "UNDEFINED" else routing)


def test_each_combination_is_carried_out_or_refused_with_field_and_remedy() -> None:
    occupancy, count = Occupancy.of(WHOLE), 0
    for routing, sync, gcds, size, cluster, single in product(
        IpuLinkRouting, SyncType, (0, 1, 2, 3, 8, 64), PARTITION_SIZES, "xy", (False, True)
    ):
        request = CreateRequest(
            "p",
            size,
            cluster_id=cluster,
            num_gcds=gcds,
            routing=routing,
            sync_type=sync,
            reconfigurable=single,
        )
        want, count = wanted(request, cluster), count + 1
        refusal = ""
        try:
            settled, ipus = complete_request(request), choose_ipus(request, occupancy, {"x"})
        except InvalidRequest as error:
            refusal = str(error)
        if refusal:
            assert isinstance(want, tuple), (request, refusal)
            assert all(words in refusal for words in want), (request, refusal)
            continue
        assert routing_of(request, has_loops=cluster == "y") == want, request
        assert (len(ipus), settled.num_gcds) == (size, gcds or 1)
        assert settled.sync_type is SyncType.GS2_DEFAULT
    assert count == 5 * 5 * 6 * len(PARTITION_SIZES) * 2 * 2


@pytest.mark.parametrize("name", ["p", "p" * 63, "p-a.b_c-0", "0"])
def test_ids_of_letters_digits_and_inner_signs_are_taken(name: str) -> None:
    complete_request(CreateRequest(name, 1))


@pytest.mark.parametrize("name", ["", "p" * 64, "p/0", "p\n", ".p", "p-", "pä"])
def test_other_ids_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="partition id"):
        complete_request(CreateRequest(name, 1))
