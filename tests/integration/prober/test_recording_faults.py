"""Absences: nothing lost, nothing doubled, nothing that stops the recording."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fakes.podstream import STEPS, expected_row, pod_of, uid_of
from tests.fakes.waiting import eventually
from usage.pods.recorder import PodRecorder, PodSelection
from usage.time.months import COMPLETE_UNTIL_SQL

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab


async def test_a_restart_goes_on_from_the_checkpoint_without_a_list(lab: Lab) -> None:
    lab.emit(range(3), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    assert lab.server.lists == 1
    await lab.stop()
    lab.emit(range(2), "ENDED", "DELETED")  # while nobody looks
    lab.start()
    await lab.all_recorded()
    rows = lab.rows()
    assert lab.server.lists == 1
    assert not lab.gaps()
    for number in range(2):
        row = rows[uid_of(number)]
        assert (row["finished_at"], row["estimated"]) == (expected_row(number).finished_at, False)
    assert rows[uid_of(2)]["finished_at"] is None
    assert lab.checkpoint()["epoch"] == 2


async def test_pods_that_vanish_while_history_is_cut_end_at_the_last_position(lab: Lab) -> None:
    seen = datetime(2026, 11, 1, tzinfo=UTC)
    lab.now = lambda: seen
    lab.emit(range(3), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    lab.emit(range(1), "ENDED", "DELETED")
    lab.server.forget()
    back = seen + timedelta(hours=2)
    lab.now = lambda: back
    lab.start()
    await eventually(lab.gaps)
    rows = lab.rows()
    gone = rows[uid_of(0)]
    assert (gone["finished_at"], gone["end_source"]) == (seen, "relist")
    assert (gone["estimated"], gone["uncertainty_seconds"]) == (True, 7200)
    assert rows[uid_of(1)]["finished_at"] is None
    (gap,) = lab.gaps()
    assert (gap["watch"], gap["began_at"], gap["ended_at"]) == ("pods", seen, back)
    assert "history" in gap["cause"]


async def test_a_history_cut_off_under_a_running_watch_is_listed_anew(lab: Lab) -> None:
    lab.emit(range(2), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.server.stop()
    lab.emit(range(1), "ENDED")
    lab.server.forget()
    await lab.server.start()
    await lab.all_recorded()
    assert lab.server.lists == 2
    assert lab.rows()[uid_of(0)]["finished_at"] == expected_row(0).finished_at
    assert not lab.rows()[uid_of(0)]["estimated"]


@pytest.mark.parametrize(
    ("happens", "want_loss"),
    [
        pytest.param((), False, id="nobody went and nobody came"),
        pytest.param(((0, "ENDED"),), False, id="one ended and is still there, with its times"),
        pytest.param(((0, "ENDED"), (0, "DELETED")), True, id="one went"),
        pytest.param(((7, "ADDED"),), True, id="one came"),
        pytest.param(((2, "DELETED"),), False, id="one went whose end was known"),
    ],
)
async def test_the_list_after_a_cut_history_says_whether_anything_was_missed(
    lab: Lab, happens: tuple[tuple[int, str], ...], want_loss: bool
) -> None:
    lab.emit(range(3), "ADDED", "RUNNING")
    lab.emit(range(2, 3), "ENDED")
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    for number, step in happens:
        lab.server.step(number, step)
    lab.server.revision += 5  # of other objects
    lab.server.forget()
    lab.start()
    await lab.all_recorded()
    assert lab.server.lists == 2
    (gap,) = lab.gaps()
    assert gap["shows_loss"] is want_loss
    begin, end = gap["began_at"] - timedelta(hours=1), gap["ended_at"] + timedelta(hours=1)
    with psycopg.connect(**lab.database) as connection:
        values = {"watch": "pods", "begin": begin, "end": end}
        (complete_until,) = connection.execute(COMPLETE_UNTIL_SQL, values).fetchone() or (None,)
    position = lab.checkpoint()["position_at"]
    assert complete_until == (gap["began_at"] if want_loss else position)


async def test_an_object_that_cannot_be_read_keeps_the_gap(lab: Lab) -> None:
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    broken = pod_of(1, "RUNNING")
    broken["status"] = "none"
    lab.server.put("ADDED", broken)
    lab.server.forget()
    lab.start()
    await lab.all_recorded()
    assert lab.gaps()[0]["shows_loss"]


async def test_a_pod_removed_by_force_is_uncertain_since_the_watch_last_told(lab: Lab) -> None:
    """Its last state has neither an end nor a time of deletion; the watch heard it live."""
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    lab.server.put("DELETED", pod_of(0, "RUNNING"))
    await lab.server.tell()
    await lab.all_recorded()
    row = lab.rows()[uid_of(0)]
    assert (row["end_source"], row["estimated"]) == ("deleted", True)
    assert (row["finished_at"] - row["scheduled_at"]).total_seconds() > 3600
    assert row["uncertainty_seconds"] < 600


async def test_another_cluster_ends_the_rows_of_the_first_estimated(lab: Lab) -> None:
    lab.emit(range(2), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.server.stop()
    lab.server.cluster_uid = "cluster-2"
    lab.server.objects.clear()
    lab.server.forget()
    lab.server.oldest = 0
    lab.emit(range(5, 6), "ADDED", "RUNNING")
    await lab.server.start()
    await eventually(lambda: lab.checkpoint()["cluster_uid"] == "cluster-2")
    rows = lab.rows()
    assert [rows[uid_of(n)]["estimated"] for n in (0, 1, 5)] == [True, True, False]
    assert rows[uid_of(5)]["cluster_uid"] == "cluster-2"
    assert "another cluster" in lab.gaps()[0]["cause"]


async def test_a_server_set_back_below_the_checkpoint_is_listed_anew(lab: Lab) -> None:
    lab.emit(range(2), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.server.stop()
    lab.server.revision = 50  # a watch from 104 would stay silent
    lab.server.log.clear()
    await lab.server.start()
    await eventually(lambda: lab.checkpoint()["resource_version"] == "50")
    assert "behind" in lab.gaps()[0]["cause"]
    lab.emit(range(2), "ENDED")
    await lab.all_recorded()
    assert not any(row["estimated"] for row in lab.rows().values())


async def test_a_vanished_pod_that_is_there_after_all_goes_on(lab: Lab) -> None:
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.server.stop()
    kept = dict(lab.server.objects)
    lab.server.objects.clear()  # a server restored from a backup before the pod
    lab.server.log.clear()
    lab.server.revision = 50
    await lab.server.start()
    await eventually(lambda: lab.rows()[uid_of(0)]["finished_at"])
    lab.server.objects.update(kept)
    lab.emit(range(1), "RUNNING")
    await lab.all_recorded()
    row = lab.rows()[uid_of(0)]
    assert (row["finished_at"], row["estimated"], row["end_source"]) == (None, False, "")
    lab.emit(range(1), "ENDED")
    await lab.all_recorded()
    assert lab.rows()[uid_of(0)]["finished_at"] == expected_row(0).finished_at


async def test_bookmarks_move_the_position(lab: Lab) -> None:
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    await lab.server.bookmark()
    await lab.all_recorded()
    assert lab.checkpoint()["position_at"] > lab.checkpoint()["listed_at"]


async def test_the_second_prober_stops_the_first(lab: Lab) -> None:
    lab.emit(range(1), "ADDED")
    first = lab.start()
    await lab.all_recorded()
    lab.start()
    await eventually(lambda: lab.checkpoint()["epoch"] == 2)
    lab.emit(range(1), "RUNNING", "ENDED", "DELETED")
    lab.emit(range(1, 3), *STEPS)
    await lab.all_recorded()
    await asyncio.wait_for(first, 90)
    assert "another prober" in lab.health[0].not_ready()[0]
    await eventually(lambda: not lab.health[1].not_ready())
    assert {row["finished_at"] for row in lab.rows().values()} == {
        expected_row(number).finished_at for number in range(3)
    }


async def test_the_api_server_away_is_said_and_waited_out(lab: Lab) -> None:
    await lab.server.stop()
    lab.start()
    await eventually(lambda: "cannot be reached" in " ".join(lab.health[0].not_ready()))
    lab.emit(range(1), *STEPS)
    await lab.server.start()
    await eventually(lambda: not lab.health[0].not_ready())


async def test_a_changed_selection_lists_anew(lab: Lab) -> None:
    bare = pod_of(1, "RUNNING")
    bare["metadata"]["annotations"] = {}
    lab.server.put("ADDED", bare)
    lab.start()
    await lab.all_recorded()
    assert not lab.rows()
    await lab.stop()
    lab.start(PodRecorder(PodSelection(all_pods=True)))
    await eventually(lab.rows)
    (row,) = lab.rows().values()
    assert (row["claim"], row["group"]) == ("namespace", "team-1")
    assert "selection" in lab.gaps()[0]["cause"]


async def test_only_chosen_namespaces_are_recorded(lab: Lab) -> None:
    lab.emit(range(6), "ADDED", "RUNNING")
    chosen = PodSelection(frozenset({"team-0", "team-1"}))
    lab.start(PodRecorder(chosen))
    await lab.all_recorded()
    assert {row["namespace"] for row in lab.rows().values()} == {"team-0", "team-1"}


async def test_postgres_away_at_the_start_is_said(lab: Lab) -> None:
    there, lab.database = lab.database, {**lab.database, "port": 1}
    lab.start()
    await eventually(lambda: "Postgres" in " ".join(lab.health[0].not_ready()))
    lab.database = there
    assert not lab.rows()


async def test_tables_older_than_the_program_are_said_with_what_to_do(lab: Lab) -> None:
    lab.execute("ALTER TABLE usage_podlifetime RENAME COLUMN micro_ipus TO of_another_release")
    lab.emit(range(1), "ADDED", "RUNNING")
    try:
        lab.start()
        await eventually(lambda: "manage.py migrate" in " ".join(lab.health[0].not_ready()))
        assert "micro_ipus" in lab.health[0].not_ready()[0]
    finally:
        lab.execute("ALTER TABLE usage_podlifetime RENAME COLUMN of_another_release TO micro_ipus")
    await lab.all_recorded()
    assert len(lab.rows()) == 1
    await eventually(lambda: not lab.health[0].not_ready())


async def test_a_position_read_late_is_dated_by_what_the_server_said(lab: Lab) -> None:
    begin = expected_row(0).scheduled_at
    lab.now = lambda: begin
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    lab.emit(range(1), "RUNNING", "ENDED", "DELETED")
    del lab.server.log[-2:]  # the server is slow to send them
    back = begin + timedelta(hours=1)
    lab.now = lambda: back
    lab.start()
    await eventually(lambda: lab.is_at(103))
    assert lab.checkpoint()["position_at"] == begin
    await lab.stop()
    lab.server.forget()
    lab.start()
    await eventually(lab.gaps)
    row = lab.rows()[uid_of(0)]
    off = abs((row["finished_at"] - expected_row(0).finished_at).total_seconds())
    assert row["estimated"]
    assert off <= row["uncertainty_seconds"]


async def test_the_time_of_a_position_follows_once_all_of_the_past_is_read(lab: Lab) -> None:
    begin = expected_row(0).scheduled_at
    lab.now = lambda: begin
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    lab.emit(range(1), "ENDED", "DELETED")
    back = begin + timedelta(hours=1)
    lab.now = lambda: back
    lab.start()
    await lab.all_recorded()
    assert lab.checkpoint()["position_at"] == back


async def test_what_goes_while_it_is_listed_is_within_the_uncertainty(lab: Lab) -> None:
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    begin = lab.checkpoint()["position_at"]
    ticks = itertools.count(60, 60)  # a minute for each look at the clock
    lab.now = lambda: begin + timedelta(seconds=next(ticks))
    lab.emit(range(1), "ENDED", "DELETED")
    lab.server.forget()
    lab.start()
    await eventually(lab.gaps, seconds=20)
    row, (gap,) = lab.rows()[uid_of(0)], lab.gaps()
    listed_at = lab.checkpoint()["listed_at"]
    assert gap["ended_at"] > listed_at
    assert row["uncertainty_seconds"] >= (gap["ended_at"] - begin).total_seconds()
