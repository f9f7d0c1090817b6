"""Confirmations that a controller over agents accepts, and changes that its agents receive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import CreateRequest, OperationState, ReadyState
from partitions.vipu.errors import AlreadyExists, NoCapacity, NotReady
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.records import UNCONFIRMED
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.server.users import Caller
from partitions.vipu.topology import fleet_of_parts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.vipu.conftest import Clock


UNCONFIRMED_ALL = Latencies(create=UNCONFIRMED, reset=UNCONFIRMED, confirmed_removal=True)


def test_a_late_confirmation_does_not_end_what_began_since(tmp_path: Path, clock: Clock) -> None:
    file = StateFile(tmp_path / "state.json")
    file.open()
    controller = Controller(fleet_of_parts(1, 4, [("c", "a")]), file, UNCONFIRMED_ALL, clock)
    first = controller.create(CreateRequest("p", 4))
    controller.confirm(first)
    assert controller.get("p").ready_state(clock()) is ReadyState.ACTIVE
    clock.forward(1)
    controller.reset("p")
    controller.confirm(first)
    assert controller.get("p").ready_state(clock()) is ReadyState.PENDING
    reset = controller.get("p")
    controller.confirm(reset)
    assert controller.get("p").ready_state(clock()) is ReadyState.ACTIVE
    controller.remove("p")  # at the same instant: the time alone does not tell the two apart
    controller.confirm(reset)
    removing = controller.get("p")
    assert removing.operation_state(clock()) is OperationState.REMOVING
    controller.confirm(removing)
    assert controller.list() == []
    controller.create(CreateRequest("p", 4))
    controller.confirm(removing)
    assert controller.get("p").operation_state(clock()) is OperationState.CREATING
    file.close()


def test_a_partition_under_removal_is_nobodys_to_use_or_to_repair(
    tmp_path: Path, clock: Clock
) -> None:
    file = StateFile(tmp_path / "state.json")
    file.open()
    fleet = fleet_of_parts(2, 4, [("c", "a")])
    controller = Controller(fleet, file, UNCONFIRMED_ALL, clock)
    controller.confirm(controller.create(CreateRequest("p", 4, relocatable=True, auto_reset=True)))
    controller.fail_ipu("ag0", 1, "IPU 1 is hot")
    moved = controller.get("p")
    assert controller.topology.by_id[moved.ipus[0]].agent == "ag1"
    controller.confirm(moved)
    controller.heal_ipu("ag0", 1)
    controller.remove("p")
    removing = controller.get("p")
    # Neither moved away from a fault, nor in ERROR, nor reset once that is mended.
    controller.fail_ipu("ag1", 2, "IPU 2 is hot")
    controller.lose_agent("ag1", "ag1 is silent")
    controller.agent_back("ag1")
    controller.heal_ipu("ag1", 2)
    assert controller.get("p") is removing
    assert removing.ready_state(clock()) is ReadyState.PENDING
    with pytest.raises(NotReady, match="partition p is being removed. Create it again"):
        controller.reset("p")
    with pytest.raises(NotReady, match="is being removed. End this attempt of the job"):
        controller.reset("p", Caller(partition="p"))
    with pytest.raises(AlreadyExists, match="partition p is being removed; try again later"):
        controller.create(CreateRequest("p", 4))
    with pytest.raises(NoCapacity):
        controller.create(CreateRequest("q", 8))  # its IPUs are not free yet
    with pytest.raises(NotReady, match="partition p is PENDING"):
        controller.ipuof_config("p", None)
    controller.remove("p")  # asked for again, it just goes on
    assert controller.get("p") is removing
    controller.remove("p", force=True)
    assert controller.list() == []
    events = [one.what for one in controller.events.last()[0] if "removed" in one.what]
    assert events == ["partition is being removed", "partition removed"]
    controller.create(CreateRequest("q", 8))
    file.close()


def test_an_error_is_over_once_the_partition_is_being_removed(tmp_path: Path, clock: Clock) -> None:
    file = StateFile(tmp_path / "state.json")
    file.open()
    controller = Controller(fleet_of_parts(1, 4, [("c", "a")]), file, UNCONFIRMED_ALL, clock)
    controller.create(CreateRequest("p", 4))
    controller.fail_ipu("ag0", 1, "IPU 1 is hot")
    assert controller.get("p").ready_state(clock()) is ReadyState.ERROR
    controller.remove("p")
    record = controller.get("p")
    found = record.ready_state(clock()), record.operation_state(clock()), record.errors
    assert found == (ReadyState.PENDING, OperationState.REMOVING, ())
    file.close()


def test_agents_hear_which_partitions_changed_and_nothing_of_refused_changes(
    tmp_path: Path, clock: Clock
) -> None:
    file = StateFile(tmp_path / "state.json")
    file.open()
    controller = Controller(fleet_of_parts(1, 4, [("c", "a")]), file, Latencies(), clock)
    heard: list[set[str]] = []
    controller.writes.on_change = lambda changed: heard.append(set(changed))
    controller.create(CreateRequest("p", 2))
    controller.create(CreateRequest("q", 2))
    with pytest.raises(NoCapacity):
        controller.create(CreateRequest("r", 2))
    controller.cordon("ag0", "a test")
    controller.uncordon("ag0")
    controller.reset("p")
    controller.remove("q")
    assert heard == [{"p"}, {"q"}, {"p"}, {"q"}]
    file.close()


def test_a_file_with_a_removal_under_way_has_a_version_that_earlier_servers_refuse(
    tmp_path: Path, clock: Clock
) -> None:
    """They know of no removals, and would take the partition for ACTIVE."""
    path = tmp_path / "state.json"

    def started() -> Controller:
        return Controller(
            fleet_of_parts(2, 4, [("c", "a")]), StateFile(path), UNCONFIRMED_ALL, clock
        )

    def version() -> int:
        return int(json.loads(path.read_bytes().partition(b"\n")[0])["version"])

    controller = started()
    controller.confirm(controller.create(CreateRequest("kept", 1)))
    assert version() == 2
    controller.create(CreateRequest("p", 1))
    controller.remove("p")
    assert version() == 10
    assert StateFile(path).load().partitions["p"].is_removing
    file = path.stat().st_ino
    controller.confirm(controller.get("p"))
    for name in ("q", "r"):  # not a whole file for each removal, and one for its end
        controller.create(CreateRequest(name, 1))
        controller.remove(name)
        controller.confirm(controller.get(name))
    assert (version(), path.stat().st_ino) == (10, file)

    later = started()
    assert [one.id for one in later.list()] == ["kept"]
    later.create(CreateRequest("s", 1))
    assert version() == 2  # an earlier server may have it again
    later.remove("s")
    # The first servers with removals wrote them under the versions without.
    path.write_bytes(path.read_bytes().replace(b'"version": 10', b'"version": 2', 1))
    assert StateFile(path).load().partitions["s"].is_removing
