"""A full disk and a read-only Postgres: nothing is acknowledged, and nothing is lost by it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.podstream import STEPS, expected_row, uid_of
from tests.fakes.waiting import eventually
from usage.pods.recorder import PodRecorder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.integration.prober.conftest import Lab
    from usage.pods.rows import PodRow

_FULL = """
CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE disk_full USING MESSAGE = 'could not extend file "base/1/2": No space left on device';
END $$;
CREATE TRIGGER no_space BEFORE INSERT OR UPDATE ON usage_podlifetime
  FOR EACH STATEMENT EXECUTE FUNCTION no_space();
"""


class Acknowledging(PodRecorder):
    """Notes which pods were reported safe."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: list[str] = []

    async def committed(self, rows: Sequence[PodRow]) -> None:
        self.acknowledged += [row.uid for row in rows]


@contextmanager
def full_disk(lab: Lab) -> Iterator[None]:
    """No row of a pod can be written."""
    lab.execute(_FULL)
    try:
        yield
    finally:
        lab.execute("DROP FUNCTION IF EXISTS no_space CASCADE")


@contextmanager
def read_only(lab: Lab) -> Iterator[None]:
    """The whole database takes no writes, as after a failover to a replica."""
    name = lab.database["dbname"]
    lab.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    _end_sessions(lab)
    try:
        yield
    finally:
        reset = f'ALTER DATABASE "{name}" RESET default_transaction_read_only'
        lab.execute(f"SET TRANSACTION READ WRITE; {reset}")
        _end_sessions(lab)  # those of the bad time keep what they began with


def _end_sessions(lab: Lab) -> None:
    """Let the probers reconnect."""
    lab.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND application_name = 'ipuhub-prober' AND datname = %s",
        lab.database["dbname"],
    )


_TROUBLES = [(full_disk, "No space left on device"), (read_only, "read-only transaction")]


@pytest.mark.parametrize(("trouble", "want_problem"), _TROUBLES, ids=["full disk", "read-only"])
async def test_nothing_is_acknowledged_until_it_is_written_and_then_all_is_there_once(
    lab: Lab, trouble: Any, want_problem: str
) -> None:
    recorder = Acknowledging()
    lab.server.step(0, "ADDED")
    lab.start(recorder)
    await eventually(lambda: lab.is_at(lab.server.revision))
    await eventually(lambda: recorder.acknowledged)
    written, known = lab.checkpoint(), list(recorder.acknowledged)
    with trouble(lab):
        for number in range(300):
            for step in STEPS:
                lab.server.step(number, step)
        await lab.server.tell()
        await eventually(lambda: want_problem in " ".join(lab.health[0].not_ready()))
        assert lab.checkpoint() == written
        assert recorder.acknowledged == known
        assert [row["uid"] for row in lab.query("SELECT uid FROM usage_podlifetime")] == known
    await eventually(lambda: lab.is_at(lab.server.revision))
    rows = lab.rows()
    assert len(rows) == 300
    assert {row["finished_at"] for row in rows.values()} == {
        expected_row(number).finished_at for number in range(300)
    }
    assert not any(row["estimated"] for row in rows.values())
    everybody = {uid_of(number) for number in range(300)}
    await eventually(lambda: set(recorder.acknowledged) == everybody)
    assert lab.health[0].not_ready() == []
    assert lab.server.lists == 1, "the watch went on, nothing was listed anew"
    assert not lab.gaps()
    assert not lab.faults()


@pytest.mark.parametrize("trouble", [full_disk, read_only], ids=["full disk", "read-only"])
async def test_a_prober_that_was_stopped_meanwhile_finds_all_of_it_again(
    lab: Lab, trouble: Any
) -> None:
    lab.server.step(0, "ADDED")
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    with trouble(lab):
        for step in STEPS[1:]:
            lab.server.step(0, step)
        for step in STEPS:
            lab.server.step(1, step)
        await lab.server.tell()
        await eventually(lab.health[0].not_ready)
        await lab.stop()
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    assert [lab.rows()[uid_of(n)]["finished_at"] for n in (0, 1)] == [
        expected_row(n).finished_at for n in (0, 1)
    ]
    assert not lab.gaps()
