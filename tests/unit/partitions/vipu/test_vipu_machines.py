"""The simulated machines: what their IPUs say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitions.vipu.errors import InvalidRequest
from partitions.vipu.server.machines import ipu_attributes
from partitions.vipu.topology import Hardware, topology_from_attributes
from tests.builders.fleets import fleet_of_machines

FLEET = fleet_of_machines(20, cluster="c", allocation="a")


def test_the_attributes_describe_exactly_the_fleet() -> None:
    found = topology_from_attributes(ipu_attributes(FLEET, []))
    assert [replace(ipu, hardware=Hardware()) for ipu in found.ipus] == [*FLEET.ipus]
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


def test_the_ipus_of_one_machine_share_its_board() -> None:
    found = ipu_attributes(FLEET, [])
    boards = {
        agent: {one["board serial number"] for one in ipus.values()}
        for agent, ipus in found.items()
    }
    assert all(len(serials) == 1 for serials in boards.values())
    assert len(set.union(*boards.values())) == 20
