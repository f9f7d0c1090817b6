"""Pods over a real watch into real tables: every row as the generator knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.fakes.podstream import STEPS, expected_row, pod_of
from tests.fakes.waiting import eventually
from usage.pods.recorder import PodRecorder, PodSelection
from usage.pods.rows import JobOwner

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab


async def test_a_pods_life_is_one_row_with_its_exact_times(lab: Lab) -> None:
    lab.start()
    for step in STEPS:
        lab.server.step(3, step)
        await lab.server.tell()
        await eventually(lambda: lab.is_at(lab.server.revision))
    (row,) = lab.rows().values()
    truth = expected_row(3)
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


JOB = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "uid": "job-1", "controller": True}


def on_ipus(number: int, **stamp: Any) -> dict[str, Any]:
    """A pod of a job that also requests 4 IPUs by name."""
    pod = pod_of(number, "RUNNING")
    pod["spec"]["containers"][0]["resources"]["requests"]["graphcore.ai/ipu"] = "4"
    usage = orjson.loads(pod["metadata"]["annotations"]["primehub.io/usage"]) | stamp
    pod["metadata"]["annotations"] = {"ipuhub.io/usage": orjson.dumps(usage).decode()}
    pod["metadata"]["labels"]["graphcore.ai/ipujob-uid"] = "job-1"
    return pod


@pytest.mark.parametrize(
    ("stamp", "owners", "want_ipus"),
    [
        pytest.param({"ipus": 8_000_000}, [JOB], 8_000_000, id="the operator's stamp, alone"),
        pytest.param({"ipus": 0}, [JOB], 0, id="the stamp of a launcher: none"),
        pytest.param({}, [JOB], 4_000_000, id="a job's pod without the stamp: its requests"),
        pytest.param({"ipus": 8_000_000}, [], 4_000_000, id="a claim: its requests only"),
    ],
)
async def test_ipus_are_counted_once(
    lab: Lab, stamp: dict[str, Any], owners: list[Any], want_ipus: int
) -> None:
    pod = on_ipus(3, **stamp)
    pod["metadata"]["ownerReferences"] = owners
    lab.server.put("ADDED", pod)
    lab.start(PodRecorder(recorded=lambda *_: {"job-1": JobOwner("team-0", "g", "ada", True)}))
    await lab.server.tell()
    await eventually(lambda: lab.is_at(lab.server.revision))
    (row,) = lab.rows().values()
    assert row["micro_ipus"] == want_ipus
    assert row["gpus"] == 1  # no accelerator among them
    assert "graphcore.ai/ipu" not in row["accelerators"]


@pytest.mark.parametrize(
    ("stamp", "owners", "want_ipus"),
    [
        pytest.param({"ipus": 8_000_000}, [JOB], 8_000_000, id="a partition: the stamp"),
        pytest.param({}, [], 0, id="a request for what a node only shows"),
    ],
)
async def test_capacity_that_nodes_only_show_is_held_by_nobody(
    lab: Lab, stamp: dict[str, Any], owners: list[Any], want_ipus: int
) -> None:
    pod = on_ipus(3, **stamp)
    pod["metadata"]["ownerReferences"] = owners
    lab.server.put("ADDED", pod)
    recorded = {"job-1": JobOwner("team-0", "g", "ada", True)}
    lab.start(PodRecorder(PodSelection(has_ipu_requests=False), recorded=lambda *_: recorded))
    await lab.server.tell()
    await eventually(lambda: lab.is_at(lab.server.revision))
    (row,) = lab.rows().values()
    assert (row["micro_ipus"], row["gpus"]) == (want_ipus, 1)


async def test_what_is_recorded_is_followed_after_the_selection_changed(lab: Lab) -> None:
    for number in (0, 3):
        lab.server.step(number, "RUNNING")
    lab.start(PodRecorder(PodSelection(frozenset({"team-0"}))))
    await eventually(lambda: lab.is_at(lab.server.revision))
    await lab.stop()
    lab.start(PodRecorder(PodSelection(frozenset({"team-1", "team-2"}))))
    await eventually(lambda: lab.is_at(lab.server.revision))
    for number in (0, 3, 6):
        lab.server.step(number, "ENDED")
    await lab.server.tell()
    await eventually(lambda: lab.is_at(lab.server.revision))
    ends = {row["finished_at"] for row in lab.rows().values()}
    assert ends == {expected_row(0).finished_at, expected_row(3).finished_at}
    assert not any(row["estimated"] for row in lab.rows().values())
