"""A simulated IPU-Machine: its values follow from its seed, its load and the time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent.machine import (
    Configuration,
    Device,
    Fault,
    FaultKind,
    MachineTest,
    PartitionState,
)
from partitions.vipu.agent.simulated import LINKS, SimulatedMachine
from partitions.vipu.errors import InvalidRequest, NotFound, NotReady
from partitions.vipu.types import IpuLinkRouting, SyncType

if TYPE_CHECKING:
    from partitions.vipu.agent.machine import IpuReading

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def configuration(name: str = "p", *indexes: int, generation: str = "1") -> Configuration:
    return Configuration(
        name,
        generation,
        tuple(Device(index, number, 0) for number, index in enumerate(indexes or (0, 1))),
        IpuLinkRouting.DNC,
        SyncType.POD_NATIVE_DEFAULT,
    )


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine("ag7", NOON)


def state(machine: SimulatedMachine, seconds: float) -> PartitionState:
    return machine.health(at(seconds)).partitions[0].state


def reading(machine: SimulatedMachine, index: int, seconds: float) -> IpuReading:
    return machine.metrics(at(seconds))[index]


def test_two_machines_of_one_seed_are_the_same_and_of_two_are_not(
    machine: SimulatedMachine,
) -> None:
    twin, other = SimulatedMachine("ag7", NOON), SimulatedMachine("ag8", NOON)
    for each in (machine, twin, other):
        each.configure(configuration(), at(5))
    assert machine.inventory == twin.inventory
    assert machine.metrics(at(100)) == twin.metrics(at(100))
    assert machine.metrics(at(100)) != other.metrics(at(100))
    serials = {ipu.serial for one in (machine, other) for ipu in one.inventory.ipus}
    assert len(serials) == 8


def test_a_partition_is_ready_once_the_latency_is_over(machine: SimulatedMachine) -> None:
    machine.configure(configuration(), at(0))
    assert state(machine, 0.4) is PartitionState.CONFIGURING
    assert state(machine, 0.5) is PartitionState.READY


def test_the_same_configuration_again_changes_nothing(machine: SimulatedMachine) -> None:
    machine.configure(configuration(), at(0))
    before = machine.metrics(at(60))
    machine.configure(configuration(), at(60))
    assert state(machine, 60) is PartitionState.READY
    assert machine.metrics(at(60)) == before


def test_another_configuration_takes_the_place_of_the_first(machine: SimulatedMachine) -> None:
    machine.configure(configuration("p", 0, 1), at(0))
    machine.configure(configuration("p", 1, 2), at(60))
    assert state(machine, 60) is PartitionState.CONFIGURING
    assert [one.in_use for one in machine.metrics(at(60))] == [False, True, True, False]


def test_an_ipu_belongs_to_one_partition_at_a_time(machine: SimulatedMachine) -> None:
    machine.configure(configuration("p", 0, 1), at(0))
    with pytest.raises(NotReady, match="IPU 1 belongs to partition p"):
        machine.configure(configuration("q", 1, 2), at(1))
    machine.release("p", at(2))
    machine.configure(configuration("q", 1, 2), at(3))
    assert [one.configuration.partition for one in machine.health(at(3)).partitions] == ["q"]


@pytest.mark.parametrize(
    "wrong",
    [
        configuration("p", 4),
        configuration("p", 1, 1),
        replace(configuration(), devices=()),
        configuration(""),
        configuration("x" * 254),
    ],
)
def test_an_impossible_configuration_is_refused_and_leaves_no_trace(
    machine: SimulatedMachine, wrong: Configuration
) -> None:
    with pytest.raises(InvalidRequest):
        machine.configure(wrong, at(0))
    assert machine.health(at(1)).partitions == ()


def test_a_release_of_what_is_not_there_is_no_error(machine: SimulatedMachine) -> None:
    machine.release("p", at(0))


def test_a_reset_takes_its_latency_once(machine: SimulatedMachine) -> None:
    with pytest.raises(NotFound, match="no partition 'p'"):
        machine.reset("p", "2", at(0))
    machine.configure(configuration(), at(0))
    machine.reset("p", "2", at(60))
    assert state(machine, 60.1) is PartitionState.CONFIGURING
    assert state(machine, 60.2) is PartitionState.READY
    machine.reset("p", "2", at(61))
    assert state(machine, 61) is PartitionState.READY
    assert [one.resets for one in machine.metrics(at(62))] == [1, 1, 0, 0]


def test_a_slow_reset_takes_as_long_as_it_says(machine: SimulatedMachine) -> None:
    machine.configure(configuration(), at(0))
    machine.inject(Fault(FaultKind.SLOW_RESET, seconds=30), at(50))
    machine.reset("p", "2", at(60))
    assert state(machine, 89) is PartitionState.CONFIGURING
    assert state(machine, 90) is PartitionState.READY


def test_an_ipu_in_use_warms_up_and_cools_down_again(machine: SimulatedMachine) -> None:
    cold = reading(machine, 0, 0)
    machine.configure(configuration(), at(10))
    warming, warm = reading(machine, 0, 60), reading(machine, 0, 1000)
    machine.release("p", at(1000))
    cooling, cool = reading(machine, 0, 1060), reading(machine, 0, 2000)
    degrees = [one.temperature_celsius for one in (cold, warming, warm, cooling, cool)]
    assert degrees[0] < degrees[1] < degrees[2] > degrees[3] > degrees[4]
    assert 29 < degrees[4] < 33
    assert 56 < degrees[2] < 60
    assert warm.power_watts > 2 * cold.power_watts > cold.power_watts > 0
    assert (warm.clock_hertz, warm.tiles) == (1_330_000_000, 1472)
    assert cold.clock_hertz < warm.clock_hertz


def test_counters_grow_while_the_ipu_is_in_use_and_never_fall(machine: SimulatedMachine) -> None:
    machine.configure(configuration(), at(0))
    used = reading(machine, 0, 7200)
    assert used.host_received_bytes > used.host_sent_bytes > 0
    assert used.link_corrected_errors == 2
    assert reading(machine, 2, 7200).host_received_bytes == 0
    machine.release("p", at(7200))
    assert reading(machine, 0, 9000).host_received_bytes == used.host_received_bytes
    machine.configure(configuration(), at(9000))
    assert reading(machine, 0, 9001).host_received_bytes > used.host_received_bytes


def test_a_link_that_is_down_is_seen_by_sensors_health_and_partition(
    machine: SimulatedMachine,
) -> None:
    machine.configure(configuration(), at(0))
    machine.inject(Fault(FaultKind.LINK_DOWN, ipu=1, link=3), at(10))
    machine.inject(Fault(FaultKind.LINK_DOWN, ipu=1, link=3), at(11))
    assert reading(machine, 1, 12).links_up == LINKS - 1
    assert reading(machine, 1, 12).link_uncorrected_errors == 2
    health = machine.health(at(12))
    assert health.faults == {1: "IPU-Link 3 of IPU 1 is down"}
    assert health.partitions[0].state is PartitionState.FAILED
    assert health.partitions[0].problem == "IPU-Link 3 of IPU 1 is down"
    machine.repair(ipu=0)
    assert machine.health(at(13)).faults
    machine.repair(ipu=1)
    assert machine.health(at(13)).faults == {}
    assert state(machine, 13) is PartitionState.READY


def test_a_fault_ends_at_its_time(machine: SimulatedMachine) -> None:
    machine.inject(Fault(FaultKind.IPU_ERROR, ipu=2, until=at(20)), at(10))
    assert machine.health(at(19)).faults == {2: "IPU 2 has a memory error"}
    assert machine.health(at(20)).faults == {}
    assert reading(machine, 2, 20).memory_errors == 1


def test_a_hang_is_of_the_machine_and_ends_with_its_repair(machine: SimulatedMachine) -> None:
    machine.inject(Fault(FaultKind.HANG), at(0))
    assert machine.is_hung(at(1))
    machine.repair(ipu=0)
    assert machine.is_hung(at(1))
    machine.repair()
    assert not machine.is_hung(at(1))


@pytest.mark.parametrize(
    "fault", [Fault(FaultKind.IPU_ERROR, 4), Fault(FaultKind.LINK_DOWN, 0, 10)]
)
def test_a_fault_of_what_the_machine_does_not_have_is_refused(
    machine: SimulatedMachine, fault: Fault
) -> None:
    with pytest.raises(InvalidRequest, match="IPUs 0 to 3"):
        machine.inject(fault, at(0))


def test_a_machine_that_starts_again_says_so(machine: SimulatedMachine) -> None:
    again = SimulatedMachine("ag7", at(60))
    assert machine.health(at(60)).boot_id != again.health(at(60)).boot_id


def test_a_test_shows_its_faults_and_disturbs_no_partition(machine: SimulatedMachine) -> None:
    machine.inject(Fault(FaultKind.LINK_DOWN, ipu=1, link=3), at(0))
    machine.inject(Fault(FaultKind.IPU_ERROR, ipu=3), at(0))
    link, memory = "IPU-Link 3 of IPU 1 is down", "IPU 3 has a memory error"
    assert machine.test(MachineTest.CONNECTIVITY, None, at(1)) == link
    assert machine.test(MachineTest.SYNC, None, at(1)) == f"{memory}; {link}"
    found = [machine.test(MachineTest.IPU_SELF_TEST, index, at(1)) for index in range(4)]
    assert found == ["", "", "", memory]
    machine.configure(configuration("p", 0), at(2))
    for kind, ipu in ((MachineTest.IPU_SELF_TEST, 0), (MachineTest.SYNC, None)):
        with pytest.raises(NotReady, match="partition p uses it"):
            machine.test(kind, ipu, at(3))
    assert machine.test(MachineTest.IPU_SELF_TEST, 1, at(3)) == ""
    assert machine.test(MachineTest.CONNECTIVITY, None, at(3)) == link


def test_a_slow_reset_keeps_the_ipus_of_a_released_partition_until_it_is_over(
    machine: SimulatedMachine,
) -> None:
    machine.configure(configuration("p"), at(0))
    machine.inject(Fault(FaultKind.SLOW_RESET, seconds=60), at(1))
    machine.release("p", at(10))
    machine.release("p", at(40))  # asked for again, it does not begin again
    assert state(machine, 69) is PartitionState.RELEASING
    assert machine.partition_metrics(at(69)) == ()
    assert not reading(machine, 0, 69).in_use
    with pytest.raises(NotReady, match="IPU 1 belongs to partition p"):
        machine.configure(configuration("q", 1), at(69))
    with pytest.raises(NotReady, match="partition p is being released"):
        machine.configure(configuration("p"), at(69))
    with pytest.raises(NotFound):
        machine.reset("p", "2", at(69))
    assert machine.health(at(70)).partitions == ()
    machine.configure(configuration("q", 1), at(70))


def test_the_ports_of_ready_devices_are_open_unless_a_fault_closes_them(
    machine: SimulatedMachine,
) -> None:
    machine.configure(configuration("p", 0, 1), at(0))
    assert machine.open_devices(at(0.4)) == set()
    assert machine.open_devices(at(0.5)) == {0, 1}
    machine.inject(Fault(FaultKind.IPUOF_CLOSED, ipu=1), at(1))
    assert machine.open_devices(at(1)) == {0}
    assert machine.health(at(1)).faults == {}  # the IPU itself is well
    (part,) = machine.health(at(1)).partitions
    assert (part.state, part.problem) == (PartitionState.READY, "the IPUoF port of IPU 1 is closed")
    assert machine.test(MachineTest.CONNECTIVITY, None, at(1)) == (
        "the IPUoF port of IPU 1 is closed"
    )
    machine.repair(1)
    assert machine.open_devices(at(1)) == {0, 1}
    assert machine.health(at(1)).partitions[0].problem == ""
    machine.inject(Fault(FaultKind.IPUOF_CLOSED, ipu=2), at(1))  # another partition's, or nobody's
    assert machine.health(at(1)).partitions[0].problem == ""
    machine.reset("p", "2", at(2))
    assert machine.open_devices(at(2)) == set()
    machine.inject(Fault(FaultKind.SLOW_RESET, seconds=9), at(3))
    machine.release("p", at(3))
    assert machine.open_devices(at(4)) == set()
