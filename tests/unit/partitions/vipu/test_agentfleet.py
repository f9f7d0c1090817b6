"""The desired configuration of each machine, derived from the partitions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.vipu.agent.machine import (
    Configuration,
    Device,
    Fault,
    FaultKind,
    Health,
    MachinePartition,
    PartitionState,
)
from partitions.vipu.agent.simulated import SimulatedMachine
from partitions.vipu.server.agents.fleet import (
    Configure,
    Release,
    Reset,
    agents_of,
    begun_parts,
    configurations,
    differences,
    failed_parts,
    fleet_of_agents,
    ready,
)
from partitions.vipu.server.records import UNCONFIRMED, PartitionRecord
from partitions.vipu.topology import IpuId
from partitions.vipu.types import IpuLinkRouting, OperationState, ReadyState, SyncType

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def part(name: str, *indexes: int, generation: str = "1") -> Configuration:
    devices = tuple(Device(index, number, 0) for number, index in enumerate(indexes))
    return Configuration(name, generation, devices, IpuLinkRouting.DNC, SyncType.POD_NATIVE_DEFAULT)


def record(*positions: int, num_gcds: int = 1) -> PartitionRecord:
    return PartitionRecord(
        id="p",
        ipus=tuple(IpuId(0, position, "c") for position in positions),
        cluster="c",
        allocation="a",
        num_gcds=num_gcds,
        num_replicas=num_gcds,
        reconfigurable=False,
        routing=IpuLinkRouting.DNC,
        sync_type=SyncType.POD_NATIVE_DEFAULT,
        auto_reset=False,
        relocatable=False,
        operation=OperationState.CREATING,
        started_at=NOON,
        ready_at=NOON + UNCONFIRMED,
    )


def does(machine: SimulatedMachine, wanted: dict[str, Configuration], now: datetime) -> int:
    """Let the machine do what is wanted of it; how many calls that took."""
    actions = differences(wanted, machine.health(now))
    for action in actions:
        match action:
            case Configure(configuration):
                machine.configure(configuration, now)
            case Reset(partition, generation):
                machine.reset(partition, generation, now)
            case Release(partition):
                machine.release(partition, now)
    return len(actions)


PLANS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.sampled_from("12")), max_size=4
).map(
    # Each IPU in one partition at most.
    lambda parts: {
        name: part(name, index, generation=generation)
        for index, (name, generation) in {
            index: (name, generation) for name, index, generation in parts
        }.items()
    }
)


@given(st.lists(PLANS, min_size=1, max_size=6))
def test_a_machine_does_what_is_wanted_whatever_it_did_before(
    plans: list[dict[str, Configuration]],
) -> None:
    machine = SimulatedMachine("ag0", NOON)
    for number, wanted in enumerate(plans):
        now = NOON + number * MINUTE
        does(machine, wanted, now)
        has = {
            one.configuration.partition: one.configuration for one in machine.health(now).partitions
        }
        assert has == wanted
        assert does(machine, wanted, now) == 0


def test_what_is_wanted_already_takes_no_call_and_a_new_generation_is_a_reset() -> None:
    machine = SimulatedMachine("ag0", NOON)
    machine.configure(part("p", 0, 1), NOON)
    assert differences({"p": part("p", 0, 1)}, machine.health(NOON)) == []
    again = differences({"p": part("p", 0, 1, generation="2")}, machine.health(NOON))
    assert again == [Reset("p", "2")]


def test_ipus_that_are_still_being_freed_are_waited_for() -> None:
    machine = SimulatedMachine("ag0", NOON)
    machine.inject(Fault(FaultKind.SLOW_RESET, seconds=90), NOON)
    machine.configure(part("p", 0), NOON)
    assert differences({}, machine.health(NOON)) == [Release("p")]
    machine.release("p", NOON)
    assert differences({}, machine.health(NOON)) == []  # asked for already
    again = {"p": part("p", 0, generation="2")}
    assert differences(again, machine.health(NOON)) == []
    assert differences(again, machine.health(NOON + 2 * MINUTE)) == [Configure(again["p"])]


def test_only_what_the_machine_has_set_up_in_this_generation_is_ready() -> None:
    machine = SimulatedMachine("ag0", NOON)
    machine.configure(part("p", 0), NOON)
    assert ready(machine.health(NOON)) == frozenset()
    assert machine.health(NOON + MINUTE).partitions[0].state is PartitionState.READY
    assert ready(machine.health(NOON + MINUTE)) == {("p", "1")}


def test_only_the_ports_of_a_partition_that_may_become_active_are_asked() -> None:
    begun = record(0)
    key = ("p", NOON.isoformat())
    for known, want in (
        (begun, {key: begun}),
        (replace(begun, errors=("ag1 has not answered since 8:00",)), {}),
        (replace(begun, ready_at=NOON), {}),
        (replace(begun, operation=OperationState.REMOVING), {}),
        (replace(begun, started_at=NOON + MINUTE, ready_at=NOON + MINUTE + UNCONFIRMED), {}),
    ):
        assert begun_parts([key], {"p": (known, frozenset({"ag0"}))}) == want


def test_machines_stand_in_their_order_at_multiples_of_their_size() -> None:
    fleet = fleet_of_agents({"ag0": 2, "ag1": 4, "ag2": 4}, [("c", "a")])
    places = {(ipu.agent, ipu.index): ipu.id.position for ipu in fleet.ipus}
    assert [places["ag0", index] for index in range(2)] == [0, 1]
    assert [places["ag1", index] for index in range(4)] == [4, 5, 6, 7]
    assert [places["ag2", index] for index in range(4)] == [8, 9, 10, 11]


def test_allocations_get_as_many_agents_each() -> None:
    agents = {f"ag{number}": 4 for number in range(4)}
    fleet = fleet_of_agents(agents, [("c1", "a1"), ("c2", "a2")])
    first = {ipu.agent: (ipu.cluster, ipu.allocation, ipu.id.position) for ipu in fleet.ipus[::4]}
    assert first == {
        "ag0": ("c1", "a1", 0),
        "ag1": ("c1", "a1", 4),
        "ag2": ("c2", "a2", 0),
        "ag3": ("c2", "a2", 4),
    }
    with pytest.raises(ValueError, match="3 agents cannot be shared out evenly among 2"):
        fleet_of_agents({"ag0": 4, "ag1": 4, "ag2": 4}, [("c1", "a1"), ("c2", "a2")])
    with pytest.raises(ValueError, match="agent ag0 has 3 IPUs"):
        fleet_of_agents({"ag0": 3}, [("c", "a")])


def test_a_partition_is_shared_out_among_its_machines_with_its_own_numbers() -> None:
    fleet = fleet_of_agents({"ag0": 4, "ag1": 4}, [("c", "a")])
    parts = configurations(record(5, 4, 3, 2, num_gcds=2), fleet)
    assert parts["ag1"].devices == (Device(1, 0, 0), Device(0, 1, 0))
    assert parts["ag0"].devices == (Device(3, 2, 1), Device(2, 3, 1))
    assert {each.generation for each in parts.values()} == {NOON.isoformat()}


BEGUN = record(0)
IN_USE = replace(BEGUN, ready_at=NOON + MINUTE)


@pytest.mark.parametrize(
    ("known", "state", "problem", "want"),
    [
        (BEGUN, PartitionState.READY, "", ""),
        (BEGUN, PartitionState.READY, "a port is closed", ""),  # its ports are asked
        (BEGUN, PartitionState.FAILED, "no clock", "no clock"),
        (BEGUN, PartitionState.CONFIGURING, "", ""),
        (IN_USE, PartitionState.READY, "", ""),
        (IN_USE, PartitionState.READY, "a port is closed", "a port is closed"),
        (IN_USE, PartitionState.FAILED, "", "partition p has failed on the machine"),
        (replace(IN_USE, errors=("old",)), PartitionState.FAILED, "no clock", ""),
        (replace(IN_USE, operation=OperationState.REMOVING), PartitionState.FAILED, "no clock", ""),
        (replace(IN_USE, started_at=NOON + MINUTE), PartitionState.FAILED, "no clock", ""),
        (None, PartitionState.FAILED, "no clock", ""),
    ],
)
def test_a_partition_that_a_machine_cannot_serve_is_found_with_its_words(
    known: PartitionRecord | None, state: PartitionState, problem: str, want: str
) -> None:
    has = MachinePartition(part("p", 0, generation=BEGUN.generation), state, problem)
    stored = {"p": (known, frozenset({"ag0"}))} if known else {}
    found = failed_parts(Health("boot", (has,), {}), stored)
    assert found == ([(known, want)] if want else [])


def test_agents_are_named_by_their_order() -> None:
    assert agents_of(["h2:8080", " h1:8080"]) == {"ag0": "h2:8080", "ag1": "h1:8080"}


def test_an_unconfirmed_partition_is_pending_whatever_the_clock_says() -> None:
    unconfirmed = record(0)
    for now in (NOON - MINUTE, NOON, NOON + 10_000 * MINUTE):
        assert unconfirmed.ready_state(now) is ReadyState.PENDING
    confirmed = replace(unconfirmed, ready_at=NOON + MINUTE)
    assert confirmed.ready_state(NOON + MINUTE) is ReadyState.ACTIVE
