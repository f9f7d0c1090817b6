"""What a controller over agents takes as confirmed, and which changes its agents hear of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import CreateRequest, ReadyState
from partitions.vipu.errors import NoCapacity
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.records import UNCONFIRMED
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.topology import fleet_of_parts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.vipu.conftest import Clock


def test_a_late_confirmation_does_not_end_what_began_since(tmp_path: Path, clock: Clock) -> None:
    file = StateFile(tmp_path / "state.json")
    file.open()
    latencies = Latencies(create=UNCONFIRMED, reset=UNCONFIRMED)
    controller = Controller(fleet_of_parts(1, 4, [("c", "a")]), file, latencies, clock)
    first = controller.create(CreateRequest("p", 4)).started_at
    controller.confirm("p", first)
    assert controller.get("p").ready_state(clock()) is ReadyState.ACTIVE
    clock.forward(1)
    controller.reset("p")
    controller.confirm("p", first)
    assert controller.get("p").ready_state(clock()) is ReadyState.PENDING
    controller.confirm("p", clock())
    assert controller.get("p").ready_state(clock()) is ReadyState.ACTIVE
    controller.remove("p")
    controller.confirm("p", clock())
    assert controller.list() == []
    file.close()


def test_agents_hear_which_partitions_changed_and_nothing_of_refused_changes(
    tmp_path: Path, clock: Clock
) -> None:
    file = StateFile(tmp_path / "state.json")
    file.open()
    controller = Controller(fleet_of_parts(1, 4, [("c", "a")]), file, Latencies(), clock)
    heard: list[set[str]] = []
    controller.on_change = lambda changed: heard.append(set(changed))
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
