"""Changes that come while the state file is being written share the next write of it."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from partitions.vipu.errors import AlreadyExists, NoCapacity, NotFound, NotStored
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.types import CreateRequest
from tests.builders.fleets import fleet_of_machines
from tests.fakes.vipu import let_ipu_fail
from tests.fakes.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.state import Draft


class Disk:
    """Syncs when it is let, notes what each file held then, and may refuse."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.busy = threading.Event()
        self.syncs = 0
        self.refuses: Exception | None = None

    def fsync(self, descriptor: int) -> None:
        self.busy.set()
        assert self.may_sync.wait(PATIENCE_SECONDS)
        if self.refuses is not None:
            raise self.refuses
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix != "":
            self.syncs += 1  # of the file, not of its folder


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"partitions.vipu.server.statefile.os.{name}", made.fsync)
    return made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def controller(tmp_path: Path, disk: Disk) -> Controller:
    del disk
    return started(tmp_path)


def started(folder: Path) -> Controller:
    state, now = StateFile(folder / "vipu.json"), datetime(2026, 3, 1, tzinfo=UTC)
    return Controller(fleet_of_machines(4), state, Latencies(), lambda: now)


def while_first_is_written(
    controller: Controller, disk: Disk, threads: ThreadPoolExecutor, *ids: str, size: int = 1
) -> list[Future[PartitionRecord]]:
    """Ask for "first", and for the others once that is being written; all of their answers."""
    answers = [threads.submit(controller.create, CreateRequest("first", 1))]
    assert disk.busy.wait(PATIENCE_SECONDS)
    answers += [threads.submit(controller.create, CreateRequest(one, size)) for one in ids]
    wait_until(lambda: controller.writes.waiting == len(ids))
    return answers


def test_those_who_come_during_a_write_share_the_next_one(
    controller: Controller, disk: Disk, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    answers = while_first_is_written(controller, disk, threads, *(f"p{n}" for n in range(7)))
    assert not any(answer.done() for answer in answers)
    disk.may_sync.set()
    made = [answer.result(PATIENCE_SECONDS) for answer in answers]
    assert disk.syncs == 2
    assert len({ipu for record in made for ipu in record.ipus}) == 8
    assert {one.id for one in started(tmp_path).list()} == {one.id for one in made}


def test_nothing_is_seen_or_answered_before_it_is_on_disk(
    controller: Controller, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    answers = while_first_is_written(controller, disk, threads, "second")
    assert controller.list() == []
    with pytest.raises(NotFound):
        controller.get("first")
    disk.may_sync.set()
    assert [answer.result(PATIENCE_SECONDS).id for answer in answers] == ["first", "second"]


def test_each_change_of_a_shared_write_sees_those_before_it(
    controller: Controller, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    answers = while_first_is_written(controller, disk, threads, "same", "same", size=8)
    threads.submit(controller.remove, "first")
    too_large = threads.submit(controller.create, CreateRequest("large", 16))
    wait_until(lambda: controller.writes.waiting == 4)
    disk.may_sync.set()
    outcomes = [answer.exception(PATIENCE_SECONDS) for answer in answers[1:]]
    assert sorted(type(one) for one in outcomes if one) == [AlreadyExists]
    assert isinstance(too_large.exception(PATIENCE_SECONDS), NoCapacity)
    wait_until(lambda: [one.id for one in controller.list()] == ["same"])


@pytest.mark.parametrize(
    ("refusal", "want"),
    [(OSError(28, "No space left on device"), NotStored), (RuntimeError("broken"), RuntimeError)],
    ids=["the disk is full", "a fault of our own"],
)
def test_a_write_that_fails_is_told_to_all_who_shared_it_and_leaves_nothing(
    controller: Controller,
    disk: Disk,
    threads: ThreadPoolExecutor,
    refusal: Exception,
    want: type[Exception],
) -> None:
    answers = while_first_is_written(controller, disk, threads, "a", "b")
    disk.refuses = refusal
    disk.may_sync.set()
    assert [type(one.exception(PATIENCE_SECONDS)) for one in answers] == [want] * 3
    assert controller.list() == []
    disk.refuses = None
    assert controller.create(CreateRequest("a", 16)).id == "a"


def test_what_cannot_be_settled_is_told_to_all_who_shared_the_write(
    controller: Controller, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    settle, broken = controller.writes.settle, RuntimeError("broken")

    def refuse(draft: Draft) -> NoReturn:
        del draft
        raise broken

    answers = while_first_is_written(controller, disk, threads, "a", "b")
    controller.writes.settle = refuse
    disk.may_sync.set()
    assert [one.exception(PATIENCE_SECONDS) for one in answers] == [None, broken, broken]
    controller.writes.settle = settle
    assert [one.id for one in controller.list()] == ["first"]


def test_a_record_that_changes_is_written_anew(controller: Controller, disk: Disk) -> None:
    disk.may_sync.set()
    for name in ("kept", "changed"):
        controller.create(CreateRequest(name, 1, auto_reset=False))
    let_ipu_fail(controller, "changed", "a link is down")
    assert started(controller.writes.file.path.parent).list() == controller.list()
    assert controller.get("changed").errors == ("ag0: a link is down",)


def test_a_folder_that_cannot_be_synced_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr("partitions.vipu.server.statefile.os.fsync", fsync)
    controller = started(tmp_path)
    with pytest.raises(NotStored, match="Input/output error"):
        controller.create(CreateRequest("p", 1))
    opened = list[Path]()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # another thread has closed it
            opened.append(link.readlink())
    assert not [path for path in opened if tmp_path in path.parents]
