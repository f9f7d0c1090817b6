"""The attributes of IPUs on simulated machines."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from partitions.vipu.errors import InvalidRequest
from partitions.vipu.server.machines import Hardware, ipu_attributes
from partitions.vipu.telemetry import (
    HEARD_ATTRIBUTE,
    POWER_ATTRIBUTE,
    Heartbeat,
    Sensors,
    heartbeat_from_attributes,
    heartbeat_from_json,
    heartbeat_to_json,
)
from partitions.vipu.topology import Hardware as MadeOf
from partitions.vipu.topology import topology_from_attributes
from tests.builders.fleets import fleet_of_machines

FLEET = fleet_of_machines(20, cluster="c", allocation="a")


def test_the_attributes_describe_exactly_the_fleet() -> None:
    found = topology_from_attributes(ipu_attributes(FLEET, []))
    assert [replace(ipu, hardware=MadeOf()) for ipu in found.ipus] == [*FLEET.ipus]
    assert len({ipu.hardware for ipu in found.ipus}) == 20  # each board has its serial number


def test_named_agents_only_are_answered() -> None:
    found = ipu_attributes(FLEET, ["ag3", "ag17"])
    assert {agent: sorted(ipus) for agent, ipus in found.items()} == {
        "ag3": [0, 1, 2, 3],
        "ag17": [0, 1, 2, 3],
    }
    assert found["ag17"][2]["ipulink domain"] == "1"
    assert found["ag17"][2]["topology id"] == "6"


def test_an_unknown_agent_is_named() -> None:
    with pytest.raises(InvalidRequest, match="agents: there is no agent 'ag99'"):
        ipu_attributes(FLEET, ["ag3", "ag99"])


def test_a_heartbeat_is_told_of_named_agents_only_and_of_no_sensor_that_is_not_there() -> None:
    sensors = {0: Sensors(41.25, 98.0, 1.33e9), 1: Sensors(power_watts=20.5)}
    heard = Heartbeat(datetime(2026, 11, 26, 8, tzinfo=UTC), sensors)
    hardware = Hardware(heartbeats={"ag3": heard})
    named = ipu_attributes(FLEET, ["ag3", "ag4"], hardware=hardware)
    found = heartbeat_from_attributes(named["ag3"])
    assert found.heard_at == heard.heard_at
    assert found.sensors == sensors | {2: Sensors(), 3: Sensors()}
    assert heartbeat_from_json(json.loads(json.dumps(heartbeat_to_json(found)))) == found
    others = ipu_attributes(FLEET, ["ag3"], hardware=hardware, published_only=True)
    for attributes in (
        named["ag4"],
        others["ag3"],
        {0: {HEARD_ATTRIBUTE: "soon", POWER_ATTRIBUTE: "?"}},
    ):
        assert heartbeat_from_attributes(attributes) == Heartbeat(
            None, dict.fromkeys(attributes, Sensors())
        )
    # All agents are read again whenever something changed: that must not be each second.
    assert ipu_attributes(FLEET, [], hardware=hardware) == ipu_attributes(FLEET, [])


def test_the_ipus_of_one_machine_share_its_board() -> None:
    found = ipu_attributes(FLEET, [])
    boards = {
        agent: {one["board serial number"] for one in ipus.values()}
        for agent, ipus in found.items()
    }
    assert all(len(serials) == 1 for serials in boards.values())
    assert len(set.union(*boards.values())) == 20
