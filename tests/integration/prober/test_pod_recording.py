"""Pods over a real watch into real tables: every row as the generator knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.podstream import STEPS, truth_of
from tests.fakes.waiting import eventually
from usage.podrecorder import PodRecorder, PodSelection

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab


async def test_a_pods_life_is_one_row_with_its_exact_times(lab: Lab) -> None:
    lab.start()
    for step in STEPS:
        lab.server.step(3, step)
        await lab.server.tell()
        await eventually(lambda: lab.is_at(lab.server.revision))
    (row,) = lab.rows().values()
    truth = truth_of(3)
    assert (row["scheduled_at"], row["finished_at"]) == (truth.scheduled_at, truth.finished_at)
    assert (row["estimated"], row["end_source"], row["exit_code"]) == (False, "event", 0)
    assert (row["cpu_millicores"], row["memory_bytes"], row["gpus"]) == (500, 2 * 2**30, 1)
    assert (row["group"], row["user"], row["claim"]) == ("group-3", "user-3", "annotation")
    assert (row["node"], row["namespace"], row["phase"]) == ("node-1", "team-0", "Succeeded")
    assert row["cluster_uid"] == "cluster-1"
    assert row["labels"] == {}


async def test_the_labels_that_are_asked_for_are_kept(lab: Lab) -> None:
    selection = PodSelection(labels=("team", "a.example/missing"))
    lab.start(PodRecorder(selection))
    lab.server.step(3, "ADDED")
    await lab.server.tell()
    await eventually(lambda: lab.is_at(lab.server.revision))
    (row,) = lab.rows().values()
    assert row["labels"] == {"team": "group-3"}
