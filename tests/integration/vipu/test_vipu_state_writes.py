"""vipu-server dies in the middle of any write of its state: it finds the old state or the new."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import CreateRequest
from partitions.vipu.errors import NotStored
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.drain import DrainOrder
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.server.records import AgentRecord
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.server.userrecords import UserRecord
from partitions.vipu.serving import STATE_FILE
from tests.builders.fleets import fleet_of_machines
from tests.integration.vipu.test_vipu_admin import health

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALICE = UserRecord("alice", "hash", ("default",), NOON, NOON)
ADDED = AgentRecord("added", "h:8080", 4)

WRITES: list[Callable[[Controller], object]] = [
    lambda one: _create(one, "p0", 4),
    lambda one: one.cordon("ag0", "cables"),
    lambda one: _create(one, "p1", 2),
    lambda one: one.fail_ipu("ag1", 0, "IPU 0 is hot"),
    lambda one: one.change(lambda draft: draft.put_user(ALICE), "user"),
    lambda one: one.remove("p0"),  # its machines have to confirm that
    lambda one: _create(one, "p2", 1),
    lambda one: one.confirm(one.get("p0")),
    lambda one: one.change(lambda draft: draft.put_agent(ADDED), "agent"),
    lambda one: one.heal_ipu("ag1", 0),
    lambda one: one.reset("p1"),
    lambda one: one.change(lambda draft: draft.remove_user("alice"), "user"),
    lambda one: one.change(lambda draft: draft.remove_agent("added"), "agent"),
    lambda one: one.lose_agent("ag1", "ag1 has not answered since 8:00"),
    lambda one: one.drain(DrainOrder(agent="ag0", force=True)),
    lambda one: one.remove("p1", force=True),
]


def _create(controller: Controller, name: str, size: int) -> None:
    controller.create(CreateRequest(name, size))


def started(path: Path) -> Controller:
    fleet, minutes = fleet_of_machines(4, cluster="c", allocation="default"), count()
    return Controller(
        fleet,
        StateFile(path),
        Latencies(confirmed_removal=True),
        lambda: NOON + next(minutes) * timedelta(minutes=1),
    )


def known(controller: Controller) -> tuple[object, ...]:
    state = controller.state
    return state.partitions, state.machines, state.users, state.agents, state.layout


def put(path: Path, content: bytes) -> None:
    """Write a new file: to cut an old one short waits for the disk on ext4, thousands of times."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def test_a_server_that_dies_in_any_write_finds_all_that_it_has_answered(tmp_path: Path) -> None:
    path, cut = tmp_path / "vipu.json", tmp_path / "cut" / "vipu.json"
    cut.parent.mkdir()
    controller = started(path)
    controller.create(CreateRequest("first", 1, relocatable=True))
    rewrites = 0
    for number, write in enumerate(WRITES):
        whole, before = path.read_bytes(), known(controller)
        write(controller)
        after = path.read_bytes()
        assert known(controller) != before, number
        if after.startswith(whole):
            for size in range(len(whole), len(after)):
                put(cut, after[:size])
                assert known(started(cut)) == before, (number, size)
        else:  # written whole beside the old file, and renamed into its place
            rewrites += 1
            for size in range(0, len(after), 7):
                put(cut, whole)
                put(cut.with_name("vipu.json.new"), after[:size])
                assert known(started(cut)) == before, (number, size)
        put(cut, after)
        assert known(started(cut)) == known(controller), number
    assert 0 < rewrites < len(WRITES)


def test_a_disk_that_is_full_before_the_last_port_listens_is_told_on_both_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    def served(controller: Controller) -> int:
        port = serve(controller)
        with monkeypatch.context() as patch:
            patch.setattr("partitions.vipu.server.statefile.os.fsync", full)
            with pytest.raises(NotStored):
                controller.cordon("ag0", "new cables")
        return port

    server = VipuServer(ServerOptions(storage=tmp_path / "state.json", port=0, admin_port=0))
    serve = server._serve
    monkeypatch.setattr(server, "_serve", served)
    port = server.start()
    try:
        assert server.admin_port is not None
        assert {health(each, STATE_FILE) for each in (port, server.admin_port)} == {"NOT_SERVING"}
        happened = [event.what for event in server.controller.events.last()[0]]
        assert happened == ["state file is not written"]
    finally:
        server.stop()
