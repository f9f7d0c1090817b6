"""After any history an occupancy equals the free blocks computed for the whole fleet."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.records import MachineRecord
from partitions.vipu.topology import PARTITION_SIZES, IpuId, fleet_of_parts, free_blocks, place

FLEET = fleet_of_parts(21, 4, [("x", "a"), ("x", "b"), ("y", "c")])
AGENTS = sorted({ipu.agent for ipu in FLEET.ipus})
machines = st.builds(
    MachineRecord,
    agent=st.sampled_from(AGENTS),
    cordon=st.none() | st.just("repair"),
    faults=st.dictionaries(st.integers(0, 3), st.just("its link is down"), max_size=3),
    lost=st.sampled_from(["", "", "ag does not answer"]),
)
steps = st.lists(st.one_of(st.sampled_from(PARTITION_SIZES), st.just(0), machines), max_size=30)


@settings(deadline=None)  # a busy machine is no failure
@given(steps=steps)
def test_any_history_leaves_the_free_blocks_of_the_whole_fleet(
    steps: list[int | MachineRecord],
) -> None:
    occupancy, held, records = Occupancy.of(FLEET), dict[str, tuple[IpuId, ...]](), {}
    for number, step in enumerate(steps):
        if isinstance(step, MachineRecord):
            records[step.agent] = step
            occupancy = occupancy.closed(step.agent, step.why_closed)
        elif step == 0 and held:
            occupancy = occupancy.freed(held.pop(next(iter(held))))
        elif step and (got := place(FLEET, used(held, records), step)):
            held[f"p{number}"] = got
            occupancy = occupancy.taken(got, f"p{number}")
    blocks = sorted(occupancy.free_blocks())
    assert blocks == sorted(free_blocks(FLEET, used(held, records)))
    for allocation, cluster in FLEET.allocations.items():
        part = FLEET.only(allocation=allocation)
        want = sorted(free_blocks(part, used(held, records)))
        assert sorted(occupancy.free_blocks(allocation=allocation, cluster=cluster)) == want
    for partition, ipus in held.items():
        assert {occupancy.holder(ipu) for ipu in ipus} == {partition}
    for ipu in FLEET.ipus:
        record = records.get(ipu.agent, MachineRecord(ipu.agent))
        assert (occupancy.why_closed(ipu.id) or "") == record.why_closed(ipu.index)


def used(held: dict[str, tuple[IpuId, ...]], records: dict[str, MachineRecord]) -> set[IpuId]:
    closed = {
        ipu.id
        for ipu in FLEET.ipus
        if ipu.agent in records and records[ipu.agent].why_closed(ipu.index)
    }
    return closed | {ipu for ipus in held.values() for ipu in ipus}
