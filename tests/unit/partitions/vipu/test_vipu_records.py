"""The records of vipu-server, written and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.vipu.server.records import (
    MachineRecord,
    PartitionRecord,
    machine_from_json,
    machine_to_json,
    record_from_json,
    record_to_json,
)
from partitions.vipu.topology import IpuId
from partitions.vipu.types import (
    GatewayRouting,
    IpuLinkRouting,
    OperationState,
    SyncType,
)

words = st.text('aé"\n', min_size=1, max_size=5)
instants = st.datetimes(timezones=st.just(UTC))
records = st.builds(
    PartitionRecord,
    id=words,
    ipus=st.lists(st.builds(IpuId, st.integers(0, 9), st.integers(0, 63)), max_size=8).map(tuple),
    cluster=words,
    allocation=words,
    errors=st.lists(words, max_size=3).map(tuple),
    started_at=instants,
    ready_at=instants,
    auto_reset_at=st.none() | instants,
)
START = datetime(2026, 3, 1, tzinfo=UTC)
RECORD = PartitionRecord(
    id="p",
    ipus=(IpuId(0, 0),),
    cluster="c",
    allocation="a",
    num_gcds=1,
    num_replicas=1,
    reconfigurable=False,
    routing=IpuLinkRouting.DNC,
    sync_type=SyncType.GS2_DEFAULT,
    auto_reset=True,
    relocatable=False,
    operation=OperationState.CREATING,
    started_at=START,
    ready_at=START + timedelta(seconds=1),
)


@settings(deadline=None)  # a busy machine is no failure
@given(record=records)
def test_a_record_is_read_back_as_it_was_written(record: PartitionRecord) -> None:
    ipus = tuple(ipu._replace(cluster=record.cluster) for ipu in record.ipus)
    record = replace(record, ipus=ipus)
    assert record_from_json(json.loads(json.dumps(record_to_json(record)))) == record


@pytest.mark.parametrize("key", sorted(record_to_json(RECORD).keys() - {"gatewayRouting"}))
def test_a_record_without_one_of_its_fields_is_refused(key: str) -> None:
    data = record_to_json(RECORD)
    del data[key]
    with pytest.raises(KeyError):
        record_from_json(data)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        record_from_json({**record_to_json(RECORD), "readyAt": "2026-03-01T00:00:00"})


@settings(deadline=None)  # a busy machine is no failure
@given(
    record=st.builds(
        MachineRecord,
        agent=words,
        cordon=st.none() | st.text(max_size=3),
        cordoned_at=st.none() | instants,
        faults=st.dictionaries(st.integers(0, 3), words),
        lost=st.just("") | words,
    )
)
def test_what_is_said_of_a_machine_is_read_back_as_it_was_written(record: MachineRecord) -> None:
    assert machine_from_json(json.loads(json.dumps(machine_to_json(record)))) == record


def test_a_machine_is_in_service_until_something_is_said_of_it() -> None:
    assert MachineRecord("ag0").is_in_service
    for record in (
        MachineRecord("ag0", cordon=""),
        MachineRecord("ag0", faults={1: "it is hot"}),
        MachineRecord("ag0", lost="ag0 does not answer"),
    ):
        assert not record.is_in_service
        assert record.why_closed(1)
    assert MachineRecord("ag0", cordon="new cables").why_closed(0) == "ag0 is cordoned: new cables"
    assert not MachineRecord("ag0", faults={1: "it is hot"}).why_closed(0)


def test_a_record_of_the_version_before_has_no_gateway_routing() -> None:
    data = record_to_json(RECORD)
    del data["gatewayRouting"]
    assert record_from_json(data).gateway_routing is GatewayRouting.UNDEFINED
    ring = record_to_json(replace(RECORD, gateway_routing=GatewayRouting.RING))
    assert record_from_json(ring).gateway_routing is GatewayRouting.RING
