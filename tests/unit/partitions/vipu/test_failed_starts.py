"""Devices that do not answer: when a partition may reset itself, when it waits, and what that
costs."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.errors import NoCapacity
from partitions.vipu.server import outages
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.records import MAX_AUTO_RESETS, UNCONFIRMED, PartitionRecord
from partitions.vipu.server.requirements import choose_ipus
from partitions.vipu.server.state import Draft, State
from partitions.vipu.topology import fleet_of_parts
from partitions.vipu.types import (
    CreateRequest,
    IpuLinkRouting,
    OperationState,
    ReadyState,
    SyncType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CLOSED = "ag1: the IPUoF port 10.1.0.4:12002 of IPU 2 does not answer: Connection refused"
LOST = "ag0 has not answered since 8:00"


def starting() -> Draft:
    """A partition with auto-reset on ag0 and ag1, whose machines are setting it up."""
    topology = fleet_of_parts(2, 4, [("c1", "a1")])
    draft = Draft(State({}, {}, Occupancy.of(topology)))
    first = topology.ipus[0]
    draft.put(
        PartitionRecord(
            id="p",
            ipus=tuple(ipu.id for ipu in topology.ipus),
            cluster=first.cluster,
            allocation=first.allocation,
            num_gcds=1,
            num_replicas=1,
            reconfigurable=False,
            routing=IpuLinkRouting.DNC,
            sync_type=SyncType.POD_NATIVE_DEFAULT,
            auto_reset=True,
            relocatable=False,
            operation=OperationState.CREATING,
            started_at=NOON,
            ready_at=NOON + UNCONFIRMED,
        )
    )
    return draft


def fail(draft: Draft, now: datetime) -> PartitionRecord:
    outages.fail_part(draft, draft.partitions["p"], CLOSED, now)
    return draft.partitions["p"]


def test_a_start_that_fails_is_tried_again_on_machines_that_are_well() -> None:
    draft = starting()
    for number in range(1, MAX_AUTO_RESETS + 1):
        record = fail(draft, NOON + number * SECOND)
        assert (record.auto_resets, record.errors, record.is_unconfirmed) == (number, (), True)
    record = fail(draft, NOON + 10 * SECOND)
    assert (record.auto_resets, record.errors) == (MAX_AUTO_RESETS, (CLOSED,))


@pytest.mark.parametrize("outage", ["agent", "ipu"])
def test_a_start_that_fails_beside_an_outage_waits_for_its_end_with_all_its_resets(
    outage: str,
) -> None:
    draft = starting()
    if outage == "agent":
        outages.lose_agent(draft, "ag0", LOST, NOON + SECOND, UNCONFIRMED)
    else:
        outages.fail_ipu(draft, "ag0", 1, "IPU 1 is hot", NOON + SECOND, UNCONFIRMED)
    (before,) = draft.partitions["p"].errors
    now = NOON + 4 * SECOND
    record = fail(draft, now)
    assert record.ready_state(now) is ReadyState.ERROR
    assert (record.errors, record.auto_resets) == ((before, CLOSED), 0)

    if outage == "agent":
        outages.agent_back(draft, "ag0", now + SECOND, UNCONFIRMED)
    else:
        outages.heal_ipu(draft, "ag0", 1, now + SECOND, UNCONFIRMED)
    again = draft.partitions["p"]
    assert (again.operation, again.errors) == (OperationState.RESETTING, ())
    assert (again.auto_resets, again.ready_state(now + SECOND)) == (1, ReadyState.PENDING)


@pytest.mark.parametrize("auto_reset", [True, False])
def test_a_partition_in_use_that_fails_goes_the_same_way(auto_reset: bool) -> None:
    draft, now = starting(), NOON + 9 * SECOND
    confirmed = replace(draft.partitions["p"], ready_at=NOON + SECOND, auto_reset=auto_reset)
    draft.put(confirmed)
    record = fail(draft, now)
    if auto_reset:
        assert (record.operation, record.auto_resets) == (OperationState.RESETTING, 1)
        assert record.is_unconfirmed
    else:
        assert record == replace(confirmed, errors=(CLOSED,))
        assert record.ready_state(now) is ReadyState.ERROR


def test_what_has_changed_since_it_was_seen_stays_as_it_is() -> None:
    draft = starting()
    begun = draft.partitions["p"]
    confirmed = replace(begun, ready_at=NOON + SECOND)
    for seen, now_there in (
        (begun, confirmed),
        (confirmed, replace(confirmed, started_at=NOON + SECOND)),
        (confirmed, replace(confirmed, errors=(LOST,))),
        (confirmed, replace(confirmed, operation=OperationState.REMOVING)),
    ):
        draft.put(now_there)
        outages.fail_part(draft, seen, CLOSED, NOON + 2 * SECOND)
        assert draft.partitions["p"] == now_there
    draft.remove("p")
    outages.fail_part(draft, begun, CLOSED, NOON + 2 * SECOND)
    assert draft.partitions == {}


def test_partitions_that_wait_for_room_cost_less_than_one_refused_creation() -> None:
    """Each write looks for room for all of them, in a fleet of 1,024 machines without room."""
    (like,) = starting().partitions.values()
    topology = fleet_of_parts(1024, 4, [("c1", "a1")])
    draft = Draft(State({}, {}, Occupancy.of(topology)))
    for number in range(1024):
        ipus = tuple(ipu.id for ipu in topology.ipus[4 * number : 4 * number + 4])
        draft.put(replace(like, id=f"p{number}", ipus=ipus, relocatable=True))
    for number in range(16):
        outages.lose_agent(draft, f"ag{number}", f"ag{number} is lost", NOON, SECOND)
    assert sum(bool(record.errors) for record in draft.partitions.values()) == 16

    def creation() -> None:
        with pytest.raises(NoCapacity):
            choose_ipus(CreateRequest("new", 4), draft.occupancy)

    def waiting() -> None:
        assert list(outages.move_stranded(draft, NOON, SECOND)) == []

    assert seconds(waiting) < seconds(creation)


def seconds(work: Callable[[], None]) -> float:
    """Return the shortest of five durations, which a busy machine lengthens least."""
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return min(taken)
