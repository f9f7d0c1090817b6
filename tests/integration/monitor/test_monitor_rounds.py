"""Rounds of the monitor: whom it asks about, what it ends and when it keeps its hands off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ipuhub.process.health import Health
from tests.fakes.counted import metric_value
from tests.fakes.podstream import uid_of
from tests.fakes.waiting import eventually
from tests.integration.monitor.conftest import NOW, STALE, ago
from usage.monitor.rounds import MONITOR, MonitorOptions

if TYPE_CHECKING:
    from tests.integration.monitor.conftest import Lookout


async def test_what_is_gone_ends_at_its_last_sighting_and_what_is_there_goes_on(
    lookout: Lookout,
) -> None:
    for number in (0, 3):
        lookout.remember(number, ago(1_000))
    lookout.run_pod(3)
    tally = await lookout.monitor().round()
    gone = lookout.row(0)
    assert (gone["finished_at"], gone["end_source"]) == (ago(1_000), "monitor")
    assert (gone["estimated"], gone["uncertainty_seconds"]) == (True, 1_000)
    there = lookout.row(3)
    assert (there["finished_at"], there["seen_at"], there["updated_at"]) == (None, NOW, ago(1_000))
    assert (tally.checked, tally.present, tally.closed, tally.problem) == (2, 1, 1, "")
    kept = lookout.last_round()
    assert (kept["checked"], kept["closed"], kept["cluster_uid"]) == (2, 1, "cluster-1")


async def test_what_was_heard_of_lately_is_not_asked_about(lookout: Lookout) -> None:
    lookout.remember(0, ago(299))
    tally = await lookout.monitor().round()
    assert tally.checked == 0
    assert lookout.is_open(0)


async def test_a_pod_of_the_same_name_with_another_uid_is_gone(lookout: Lookout) -> None:
    lookout.remember(0, ago(400))
    lookout.run_pod(0, uid="somebody-else")
    await lookout.monitor().round()
    assert lookout.row(0)["end_source"] == "monitor"


async def test_many_pods_of_a_namespace_are_listed_in_pages(lookout: Lookout) -> None:
    for number in range(0, 150, 3):  # 50 of team-0, in pages of 10
        lookout.remember(number, ago(400))
        if number % 2:
            lookout.run_pod(number)
    tally = await lookout.monitor().round()
    assert (tally.checked, tally.present, tally.closed) == (50, 25, 25)
    assert all(lookout.is_open(number) == bool(number % 2) for number in range(0, 150, 3))
    assert lookout.clients[0].calls["get", "pods"] == 0
    assert lookout.clients[0].calls["list", "pods"] == 3


async def test_what_a_monitor_saw_is_a_sighting(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000))
    lookout.run_pod(0)
    monitor = lookout.monitor()
    await monitor.round()
    assert (await monitor.round()).checked == 0  # it was seen a moment ago
    lookout.server.objects.clear()
    lookout.now = ago(-600)
    await monitor.round()
    row = lookout.row(0)
    assert (row["finished_at"], row["uncertainty_seconds"]) == (NOW, 600)


async def test_the_position_of_a_prober_that_is_away_is_a_sighting(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000))
    lookout.watched(lookout.server.revision - 1, ago(700))
    await lookout.monitor().round()
    row = lookout.row(0)
    assert (row["finished_at"], row["uncertainty_seconds"]) == (ago(700), 700)


async def test_a_pod_never_scheduled_ends_without_an_allocation(lookout: Lookout) -> None:
    lookout.remember(0, ago(400))
    lookout.execute("UPDATE usage_podlifetime SET scheduled_at = NULL")
    await lookout.monitor().round()
    row = lookout.row(0)
    assert (row["scheduled_at"], row["finished_at"]) == (None, ago(400))


async def test_a_prober_at_work_that_is_behind_ends_its_rows_itself(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000))
    lookout.watched(lookout.server.revision - 1, ago(1))
    tally = await lookout.monitor().round()
    assert lookout.is_open(0)
    assert (tally.closed, tally.left, tally.problem) == (0, 1, "")


async def test_what_a_prober_at_work_has_missed_ends_where_it_was_last_written(
    lookout: Lookout,
) -> None:
    lookout.remember(0, ago(5_000))
    lookout.watched(lookout.server.revision, ago(1))  # past the end, and wrote none
    await lookout.monitor().round()
    row = lookout.row(0)
    assert (row["finished_at"], row["uncertainty_seconds"]) == (ago(5_000), 5_000)


async def test_a_position_proves_nothing_after_a_refused_change(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000))
    lookout.watched(lookout.server.revision - 1, ago(700))
    lookout.execute(
        "INSERT INTO ipuhub_recordfault (watch, uid, namespace, name, code, message, excerpt, "
        "count, first_at, last_at) VALUES ('pods', %s, '', '', 'refused', '', '', 1, %s, %s)",
        uid_of(0),
        ago(4_000),
        ago(4_000),
    )
    await lookout.monitor().round()
    assert lookout.row(0)["finished_at"] == ago(5_000)


@pytest.mark.parametrize(
    ("cluster", "namespace"), [("cluster-2", ""), ("cluster-1", "team-1")], ids=["cluster", "ns"]
)
async def test_the_position_of_another_watch_is_no_sighting(
    lookout: Lookout, cluster: str, namespace: str
) -> None:
    lookout.remember(0, ago(5_000))
    position = lookout.server.revision - 1
    lookout.watched(position, ago(700), cluster=cluster, namespace=namespace)
    await lookout.monitor().round()
    assert lookout.row(0)["finished_at"] == ago(5_000)


async def test_rows_of_another_cluster_are_left_alone(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000), cluster="cluster-2")
    tally = await lookout.monitor().round()
    assert tally.checked == 0
    assert lookout.is_open(0)


async def test_an_api_server_away_ends_nothing_and_says_so(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000))
    await lookout.server.stop()
    monitor = lookout.monitor()
    lookout.now = ago(-60)
    tally = await monitor.round()
    assert lookout.is_open(0)
    assert "cannot be reached" in tally.problem
    assert monitor.problem == tally.problem
    monitor.fill_metrics()
    assert metric_value(MONITOR, "ipuhub_monitor_round_age_seconds") == 60
    await lookout.server.start()
    assert (await monitor.round()).closed == 1
    assert monitor.problem == ""
    monitor.fill_metrics()
    assert metric_value(MONITOR, "ipuhub_monitor_round_age_seconds") == 0


async def test_a_list_that_does_not_end_well_ends_nothing(lookout: Lookout) -> None:
    for number in range(0, 150, 3):
        lookout.remember(number, ago(400))
    lookout.server.refuses_lists = True
    tally = await lookout.monitor().round()
    assert tally.closed == 0
    assert "team-0" in tally.problem


async def test_a_404_of_somebody_else_is_no_answer(lookout: Lookout) -> None:
    lookout.remember(0, ago(400))
    lookout.server.is_hidden = True
    tally = await lookout.monitor().round()
    assert lookout.is_open(0)
    assert tally.problem


async def test_a_pod_that_nobody_recorded_is_not_added(lookout: Lookout) -> None:
    lookout.run_pod(0)
    await lookout.monitor().round()
    assert lookout.row(0) == {}


async def test_postgres_away_is_said(lookout: Lookout) -> None:
    there, lookout.database = lookout.database, {**lookout.database, "port": 1}
    health = Health()
    running = asyncio.create_task(lookout.monitor().run(health))
    await eventually(lambda: "Postgres" in " ".join(health.not_ready()))
    (line,) = health.not_ready()
    assert line.startswith("monitor: Postgres: ")
    assert "\n" not in line
    running.cancel()
    lookout.database = there


@pytest.mark.parametrize("ages", [(400, 900), (900, 400)])
async def test_where_there_are_too_many_the_oldest_are_asked_about_first(
    lookout: Lookout, ages: tuple[int, int]
) -> None:
    lookout.options = MonitorOptions(stale_seconds=STALE, most=1)
    for number, age in zip((0, 3), ages, strict=True):
        lookout.remember(number, ago(age))
    assert (await lookout.monitor().round()).closed == 1
    assert [lookout.is_open(number) for number in (0, 3)] == [age == 400 for age in ages]


async def test_an_end_is_never_before_its_start_and_not_surer_than_it_is(lookout: Lookout) -> None:
    lookout.remember(0, ago(400.5))
    lookout.execute("UPDATE usage_podlifetime SET scheduled_at = %s", ago(350))
    await lookout.monitor().round()
    row = lookout.row(0)
    assert (row["finished_at"], row["uncertainty_seconds"]) == (ago(350), 401)


async def test_a_sighting_is_of_when_was_asked(lookout: Lookout) -> None:
    lookout.remember(0, ago(400))
    lookout.run_pod(0)
    lookout.seconds_a_look = 10
    await lookout.monitor().round()
    assert lookout.row(0)["seen_at"] == ago(-10)  # and the answer was there at -20


async def test_another_cluster_that_answers_in_the_middle_ends_nothing(lookout: Lookout) -> None:
    lookout.remember(0, ago(400))
    lookout.at_look = lambda: setattr(lookout.server, "cluster_uid", "cluster-2")
    tally = await lookout.monitor().round()
    assert lookout.is_open(0)
    assert "another cluster" in tally.problem


async def test_a_row_that_was_written_while_it_was_asked_about_stays(lookout: Lookout) -> None:
    lookout.remember(0, ago(400))
    write = "UPDATE usage_podlifetime SET updated_at = %s"
    lookout.at_look = lambda: lookout.execute(write, NOW)
    tally = await lookout.monitor().round()
    assert (tally.checked, tally.closed, tally.left) == (1, 0, 1)
    assert lookout.is_open(0)


async def test_a_prober_that_takes_over_in_the_middle_lists_anew_itself(lookout: Lookout) -> None:
    lookout.remember(0, ago(5_000))
    revision = lookout.server.revision - 1
    lookout.watched(revision, ago(700), epoch=1)
    lookout.at_look = lambda: lookout.watched(revision, ago(700), epoch=2)
    tally = await lookout.monitor().round()
    assert (tally.checked, tally.closed, tally.left) == (1, 0, 1)
    assert lookout.is_open(0)
