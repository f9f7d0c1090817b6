"""The state file: what was answered survives; what cannot be understood is left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import CreateRequest, ReadyState, VipuClient
from partitions.vipu.server.statefile import StateFile, StateFileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.server.main import VipuServer

    from .conftest import Clock


async def test_partitions_survive_a_restart_and_go_on_where_they_were(
    start_server: Callable[..., tuple[VipuServer, int]], clock: Clock
) -> None:
    first, port = start_server()
    async with VipuClient(f"127.0.0.1:{port}") as client:
        await client.create_partition(CreateRequest("old", 4, num_gcds=2, reconfigurable=True))
        clock.forward(1)
        await client.create_partition(CreateRequest("new", 8))
        before = await client.list_partitions()
    first.stop()

    _, port = start_server()
    async with VipuClient(f"127.0.0.1:{port}") as client:
        assert await client.list_partitions() == before
        assert (await client.partition_status("new")).ready_state is ReadyState.PENDING
        clock.forward(0.5)
        assert (await client.partition_status("new")).ready_state is ReadyState.ACTIVE
        await client.create_partition(CreateRequest("more", 4))
        ipus = [ipu for one in await client.list_partitions() for ipu in one.ipus]
        assert len(ipus) == len(set(ipus)) == 16


DAMAGED = [
    ("{", "it is not JSON"),
    ("", "it is not JSON"),
    ("[]", "vipu-server did not write it"),
    ('{"format": "other"}', "vipu-server did not write it"),
    ('{"format": "ipuhub-vipu-server", "version": 2}', "has version 2"),
    ('{"format": "ipuhub-vipu-server", "version": 1}', "cannot be read"),
    ('{"format": "ipuhub-vipu-server", "version": 1, "partitions": [{}]}', "cannot be read"),
    ('{"format": "ipuhub-vipu-server", "version": 1, "partitions": 7}', "cannot be read"),
    ("\udcff".encode("utf-8", "surrogateescape"), "it is not JSON"),
]


@pytest.mark.parametrize(("text", "want"), DAMAGED, ids=[str(want) for _, want in DAMAGED])
def test_a_file_that_cannot_be_understood_stops_the_start_and_stays_as_it_is(
    start_server: Callable[..., tuple[VipuServer, int]],
    storage: Path,
    text: str | bytes,
    want: str,
) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    storage.parent.mkdir()
    storage.write_bytes(content)
    with pytest.raises(StateFileError, match=want) as caught:
        start_server()
    assert str(storage) in str(caught.value)
    assert storage.read_bytes() == content


async def create(start: Callable[..., tuple[VipuServer, int]], *sizes: int) -> None:
    server, port = start()
    async with VipuClient(f"127.0.0.1:{port}") as client:
        for number, size in enumerate(sizes):
            await client.create_partition(CreateRequest(f"p{number}", size))
    server.stop()


async def test_a_smaller_fleet_than_the_stored_partitions_need_is_refused(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    await create(start_server, 16, 16)
    with pytest.raises(StateFileError, match="--machines"):
        start_server(machines=4)
    assert len(json.loads(storage.read_text())["partitions"]) == 2
    start_server(machines=16)


async def test_a_file_in_which_two_partitions_hold_one_ipu_is_refused(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    await create(start_server, 4, 4)
    data = json.loads(storage.read_text())
    data["partitions"][1]["ipus"] = data["partitions"][0]["ipus"]
    storage.write_text(json.dumps(data))
    with pytest.raises(StateFileError, match="p0 and p1 hold the same IPU"):
        start_server()


async def test_a_file_that_holds_one_partition_twice_is_refused(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    await create(start_server, 4)
    data = json.loads(storage.read_text())
    storage.write_text(json.dumps({**data, "partitions": data["partitions"] * 2}))
    with pytest.raises(StateFileError, match="one partition twice"):
        start_server()


def test_two_controllers_never_share_a_state_file(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    first, _ = start_server()
    with pytest.raises(StateFileError, match="another vipu-server uses"):
        start_server()
    first.stop()
    start_server()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFileError, match="Not a directory|File exists"):
        StateFile(tmp_path / "file" / "state.json").open()


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match=f"cannot read .*{tmp_path.name}: Is a directory"):
        StateFile(tmp_path).load()


def test_a_failed_write_leaves_the_old_state_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFile(tmp_path / "state.json")
    state.save([])
    before = state.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("partitions.vipu.server.statefile.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        state.save([])
    assert state.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_write_reaches_the_disk_before_and_after_it_takes_the_place_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFile(tmp_path / "state.json")
    synced: list[tuple[str, bool]] = []
    original = os.fsync

    def noting(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, state.path.exists()))
        original(descriptor)

    monkeypatch.setattr("partitions.vipu.server.statefile.os.fsync", noting)
    state.save([])
    assert synced == [("state.json.new", False), (tmp_path.name, True)]


def test_a_half_written_file_of_a_killed_process_is_ignored(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    storage.parent.mkdir()
    storage.with_name(storage.name + ".new").write_text("{")
    server, _ = start_server()
    assert server.controller.list() == []
