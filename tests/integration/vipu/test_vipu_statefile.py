"""The state file: acknowledged changes survive; an unreadable file is not changed."""

from __future__ import annotations

import json
import os
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import CreateRequest, ReadyState, VipuClient
from partitions.vipu.errors import Unavailable
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.options import parse_options
from partitions.vipu.server.records import MachineRecord
from partitions.vipu.server.state import Draft, State
from partitions.vipu.server.statefile import StateFile, StateFileError, default_storage
from partitions.vipu.topology import IpuId
from tests.builders.fleets import fleet_of_machines
from tests.fakes.vipu import let_ipu_fail

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


def summed(text: str) -> str:
    """A line of the file that says this, with its checksum."""
    return f'{text[:-1]}, "crc32": "{zlib.crc32(text[:-1].encode()):08x}"}}\n'


HEAD = '{"format": "ipuhub-vipu-server", "version": 2}\n'
DAMAGED = [
    ("{", "it is not JSON"),
    ("", "it is not JSON"),
    ("[]", "vipu-server did not write it"),
    ('{"format": "other"}', "vipu-server did not write it"),
    ('{"format": "ipuhub-vipu-server", "version": 6}', "does not fit its agents"),
    ('{"format": "ipuhub-vipu-server", "version": 18}', "has version 18"),
    ('{"format": "ipuhub-vipu-server", "version": 14}', "does not fit its agents"),
    ('{"format": "ipuhub-vipu-server", "version": 4}\n', "does not fit its users"),
    ('{"format": "ipuhub-vipu-server", "version": 1}', "cannot be read"),
    ('{"format": "ipuhub-vipu-server", "version": 1, "partitions": [{}]}', "cannot be read"),
    ('{"format": "ipuhub-vipu-server", "version": 1, "partitions": 7}', "cannot be read"),
    ("\udcff".encode("utf-8", "surrogateescape"), "it is not JSON"),
    (HEAD + '{"changes": []}\n', "line 2 is not as it was written"),
    (HEAD + summed('{"changes": [{"partition": {}}]}'), "a line in it cannot be read"),
    (HEAD + summed('{"changes": [{"other": {}}]}'), "unknown change 'other'"),
    (HEAD + summed('{"changes": [{"removed": "p"}]}'), "a line in it cannot be read"),
    (HEAD + summed('{"changes": []}').replace("[]", "{}"), "line 2 is not as it was written"),
]


REMEDIES = (
    "restore it from a backup, or move it away to start without partitions",
    "start the version that wrote it, or choose another --storage",
)


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
    assert str(caught.value).endswith(REMEDIES)
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
    assert len(storage.read_text().splitlines()) == 3
    start_server(machines=16)


def version_1(*ids: str) -> str:
    """A file of version 1: partitions, one document, that all hold the same IPU."""
    partitions = [{**PARTITION, "id": name} for name in ids]
    return json.dumps({"format": "ipuhub-vipu-server", "version": 1, "partitions": partitions})


PARTITION = {
    "id": "p0",
    "ipus": [[0, 4], [0, 5]],
    "cluster": "default",
    "allocation": "default",
    "numGcds": 1,
    "numReplicas": 1,
    "reconfigurable": False,
    "routing": "DNC",
    "syncType": "GS2_DEFAULT",
    "autoReset": True,
    "relocatable": False,
    "operation": "CREATING",
    "startedAt": "2026-03-01T11:00:00+00:00",
    "readyAt": "2026-03-01T11:00:01+00:00",
    "errors": [],
    "autoResets": 0,
    "autoResetAt": None,
}


@pytest.mark.parametrize(
    "text",
    [
        version_1("p0", "p1"),
        HEAD
        + "".join(
            summed(json.dumps({"changes": [{"partition": {**PARTITION, "id": name}}]}))
            for name in ("p0", "p1")
        ),
    ],
    ids=["version 1", "version 2"],
)
def test_a_file_in_which_two_partitions_hold_one_ipu_is_refused(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path, text: str
) -> None:
    storage.parent.mkdir()
    storage.write_text(text)
    with pytest.raises(StateFileError, match="p0 and p1 hold the same IPU"):
        start_server()
    assert storage.read_text() == text


def test_a_file_that_holds_one_partition_twice_is_refused(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    storage.parent.mkdir()
    storage.write_text(version_1("p0", "p0"))
    with pytest.raises(StateFileError, match="one partition twice"):
        start_server()


def test_a_file_of_version_1_is_read_and_becomes_one_of_version_2(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    storage.parent.mkdir()
    storage.write_text(version_1("p0"))
    server, _ = start_server()
    assert server.controller.get("p0").ipus == (
        IpuId(0, 4, "default"),
        IpuId(0, 5, "default"),
    )
    server.controller.create(CreateRequest("p1", 1))
    server.stop()
    assert storage.read_text().startswith(HEAD)
    server, _ = start_server()
    assert [one.id for one in server.controller.list()] == ["p0", "p1"]


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


def empty() -> State:
    return State({}, {}, Occupancy.of(fleet_of_machines(4)))


def test_a_refused_rewrite_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFile(tmp_path / "state.json")
    state.save([], empty())
    state.close()
    before = state.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("partitions.vipu.server.statefile.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        state.save([], empty())
    assert state.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("refused", ["write", "fdatasync"])
def test_a_line_that_the_disk_refuses_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    controller = started(tmp_path)
    controller.create(CreateRequest("first", 1))
    original = os.write

    def full(file: int, data: bytes = b"") -> int:
        original(file, bytes(data)[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(f"partitions.vipu.server.statefile.os.{refused}", full)
        with pytest.raises(Unavailable, match="No space"):
            controller.create(CreateRequest("refused", 1))
    assert [one.id for one in started(tmp_path).list()] == ["first"]
    controller.create(CreateRequest("later", 1))
    assert [one.id for one in started(tmp_path).list()] == ["first", "later"]


def test_a_rewritten_file_reaches_the_disk_before_and_after_it_takes_the_place_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFile(tmp_path / "state.json")
    synced: list[tuple[str, bool]] = []
    original = os.fsync

    def noting(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, state.path.exists()))
        original(descriptor)

    monkeypatch.setattr("partitions.vipu.server.statefile.os.fsync", noting)
    state.save([], empty())
    assert synced == [("state.json.new", False), (tmp_path.name, True)]


def started(folder: Path) -> Controller:
    state, now = StateFile(folder / "vipu.json"), datetime(2026, 3, 1, tzinfo=UTC)
    return Controller(fleet_of_machines(4), state, Latencies(), lambda: now)


def test_a_file_cut_off_at_any_byte_holds_all_that_was_answered_before(tmp_path: Path) -> None:
    controller = started(tmp_path)
    path, known = tmp_path / "vipu.json", []
    for number in range(3):
        controller.create(CreateRequest(f"p{number}", 2))
        known.append((path.stat().st_size, controller.list()))
    let_ipu_fail(controller, "p1", "a link is down")
    known.append((path.stat().st_size, controller.list()))
    controller.remove("p0")
    known.append((path.stat().st_size, controller.list()))
    whole = path.read_bytes()
    cut = tmp_path / "cut" / "vipu.json"
    cut.parent.mkdir()
    for size in range(known[0][0], len(whole) + 1):
        cut.unlink(missing_ok=True)  # to shorten an old file waits for the disk on ext4
        cut.write_bytes(whole[:size])
        last = [records for written, records in known if written <= size][-1]
        assert started(cut.parent).list() == last, size


def test_a_byte_changed_in_the_middle_is_found(tmp_path: Path) -> None:
    controller = started(tmp_path)
    for number in range(3):
        controller.create(CreateRequest(f"p{number}", 2))
    path = tmp_path / "vipu.json"
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.unlink()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StateFileError):
            started(tmp_path)


def test_a_file_that_has_grown_is_written_anew_and_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.server.statefile._SMALL_BYTES", 4096)
    controller = started(tmp_path)
    controller.create(CreateRequest("kept", 4))
    for number in range(200):
        controller.create(CreateRequest(f"p{number}", 1))
        controller.remove(f"p{number}")
        assert (tmp_path / "vipu.json").stat().st_size <= 4096
    assert started(tmp_path).list() == controller.list()


def test_a_half_written_file_of_a_killed_process_is_ignored(
    start_server: Callable[..., tuple[VipuServer, int]], storage: Path
) -> None:
    storage.parent.mkdir()
    storage.with_name(storage.name + ".new").write_text("{")
    server, _ = start_server()
    assert server.controller.list() == []


def test_what_is_said_of_machines_is_kept_until_nothing_is(tmp_path: Path) -> None:
    file, draft = StateFile(tmp_path / "vipu.json"), Draft(empty())
    records = [MachineRecord("ag0", cordon="cables"), MachineRecord("ag1", faults={2: "it is hot"})]
    for machine in records:
        draft.put_machine(machine)
    file.save(draft.changes, draft.state)  # a rewrite
    assert list(StateFile(file.path).load().machines.values()) == records
    later = Draft(draft.state)
    later.put_machine(MachineRecord("ag0"))
    file.save(later.changes, later.state)  # a line
    assert list(StateFile(file.path).load().machines.values()) == records[1:]
    assert later.state.occupancy.why_closed(IpuId(0, 0)) is None
    assert later.state.occupancy.why_closed(IpuId(0, 6)) == "it is hot"


def test_a_server_that_is_given_no_file_stores_where_its_user_keeps_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state, name = tmp_path / "state", "ipuhub/vipu-server.json"
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"XDG_STATE_HOME": str(state)}
    assert default_storage(environ, is_root=True) == Path("/var/lib") / name
    assert default_storage(environ, is_root=False) == state / name
    for silent in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert default_storage(silent, is_root=False) == tmp_path / ".local/state" / name
    chosen = {"IPUHUB_SIMULATED_VIPU_STORAGE": str(tmp_path / "chosen.json")}
    assert parse_options([], chosen).storage == tmp_path / "chosen.json"


def test_the_file_of_an_earlier_version_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    environ, earlier = {"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path / "vipu-server.json"
    earlier.touch()
    with pytest.raises(SystemExit, match="2"):
        parse_options([], environ)
    assert f"start with --storage {earlier}" in capsys.readouterr().err
    assert parse_options(["--storage", "vipu-server.json"], environ).storage.samefile(earlier)
    moved = tmp_path / "state/ipuhub/vipu-server.json"
    moved.parent.mkdir(parents=True)
    earlier.rename(moved)
    assert parse_options([], environ).storage == moved


def test_a_user_without_a_home_is_told_to_name_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of a container whom no /etc/passwd knows."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(StateFileError, match="give --storage"):
        default_storage({}, is_root=False)
