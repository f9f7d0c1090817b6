"""The conditions for a launcher's command to start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from jobs.launcher.main import (
    CARRIER,
    RETRY_SECONDS,
    Launcher,
    NoAnswerError,
    awaited,
    closed_because,
)
from jobs.operator.statuscarrier import with_carrier
from tests.builders.ipujobs import ipujob, worker
from tests.builders.publishedcrd import STATUS_FIELDS

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder

JOB = ipujob().workers(2).build()
NAMES = ("sample-worker-0", "sample-worker-1")


def test_it_waits_for_workers_of_its_attempt_that_are_ready() -> None:
    pods = [worker(JOB, 0).running().build(), worker(JOB, 1).running().build()]
    assert awaited(NAMES, pods, 0) == ""
    assert "0 of 2 workers are ready" in awaited(NAMES, pods, 1)


def test_it_says_what_it_waits_for_and_why() -> None:
    pods = [worker(JOB, 0).running().build(), worker(JOB, 1).waiting("ErrImagePull").build()]
    message = awaited(NAMES, pods, 0)
    assert message.startswith("1 of 2 workers are ready; waiting for sample-worker-1 (ErrImagePull")
    assert awaited(NAMES, pods[:1], 0).endswith("sample-worker-1 (not there yet)")
    many = tuple(f"w-{n}" for n in range(9))
    assert awaited(many, [], 0).endswith("and 6 more")


def test_a_worker_that_is_going_is_not_ready() -> None:
    pods = [worker(JOB, 0).running().build(), worker(JOB, 1).running().deleting().build()]
    assert "sample-worker-1 (Running)" in awaited(NAMES, pods, 0)


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (ipujob(), ""),
        (ipujob().with_status(instances=[{"index": 0, "attempt": 0, "state": "Pending"}]), ""),
        (ipujob().running(), "another launcher of attempt 0 has already started the command"),
        (ipujob().deleted(), "the job is being deleted"),
        (ipujob().finished("Failed"), "the job is Failed"),
        (
            ipujob().with_status(instances=[{"index": 0, "attempt": 2, "state": "Pending"}]),
            "the job is at attempt 2, this pod belongs to attempt 0",
        ),
    ],
)
def test_the_gate_is_open_for_the_current_attempt_of_an_unfinished_job(
    job: IPUJobBuilder, want: str
) -> None:
    assert closed_because(job.build(), "uid-sample", 0, 0) == want


def test_the_gate_is_closed_for_another_job_of_the_name() -> None:
    assert closed_because(ipujob().build(), "uid-other", 0, 0) == "the job is gone"
    assert closed_because(None, "uid-sample", 0, 0) == "the job is gone"


def test_it_says_in_the_words_of_the_scheduler_that_no_node_takes_a_worker() -> None:
    pods = [worker(JOB, 0).unschedulable("0/4 nodes").build()]
    assert "sample-worker-0 (Unschedulable: 0/4 nodes" in awaited(NAMES, pods, 0)


def test_the_gate_knows_the_attempt_where_the_crd_drops_it_from_the_status() -> None:
    job = ipujob().running()
    instances = [{"index": 0, "attempt": 2, "state": "Pending"}]
    written = with_carrier(job.build()["status"], {"instances": instances}, "now")
    kept = {name: value for name, value in written.items() if name in STATUS_FIELDS}
    built = job.build() | {"status": kept}
    assert closed_because(built, "uid-sample", 0, 2) == ""
    assert "attempt 2" in closed_because(built, "uid-sample", 0, 0)


@pytest.mark.parametrize(
    "status",
    [
        "x",
        {"launcherStatus": ["x"]},
        {"instances": "x"},
        {"instances": ["x"]},
        {"instances": [{"index": "0", "attempt": 0}]},
        {"instances": [{"index": 0, "attempt": "0"}]},
        {"instances": [{"index": 0, "attempt": False}]},
        {"instances": [{"index": 0}]},
        {"instances": [{"index": 0, "attempt": 0, "state": [1]}]},
        {"conditions": 7},
        {"conditions": [None]},
        {"conditions": [{"type": CARRIER, "message": 7}]},
        {"conditions": [{"type": CARRIER, "message": "[1]"}]},
        {"conditions": [{"type": CARRIER, "message": "{"}]},
        {"conditions": [{"type": CARRIER, "message": "[" * 100_000}]},
        {"conditions": [{"type": CARRIER, "message": '{"instances": 7}'}]},
    ],
    ids=lambda status: str(status)[:70],
)
def test_the_gate_waits_until_a_malformed_status_is_rewritten(status: object) -> None:
    """A launcher that fails would end an attempt of a job that may well run."""
    with pytest.raises(NoAnswerError, match="malformed"):
        closed_because(ipujob().build() | {"status": status}, "uid-sample", 0, 0)


META = {"name": "w", "labels": {"graphcore.ai/attempt": "0"}}


def launcher_of(found: object, lines: list[str]) -> Launcher:
    """A launcher whose API server answers each request with `found`."""
    task = SimpleNamespace(
        uid="u", namespace="x", job="j", instance=0, attempt=0, worker_names=["w"], workers=1
    )
    task.wait_seconds = 0
    api = SimpleNamespace(get=lambda _: found, watch=lambda *_: iter([found]))
    return Launcher(task, api, lines.append)  # type: ignore[arg-type]


def stop(_: float) -> None:
    raise TimeoutError("it would ask again")


def listed(*pods: object) -> object:
    return {"metadata": {"resourceVersion": "1"}, "items": [*pods]}


@pytest.mark.parametrize(
    ("found", "path"),
    [
        ("x", ""),
        ({"items": []}, ".metadata"),
        (listed("x"), ".items[0]"),
        (listed({"metadata": {"labels": {}}}), ".items[0].metadata.name"),
        (listed({"metadata": META | {"labels": "x"}}), ".items[0].metadata.labels"),
        (listed({"metadata": META, "status": "x"}), ".items[0].status"),
        (listed({"metadata": META, "status": {"phase": 7}}), ".items[0].status.phase"),
        (
            listed({"metadata": META, "status": {"conditions": [None]}}),
            ".items[0].status.conditions[0]",
        ),
        (
            listed({"metadata": META, "status": {"containerStatuses": [{"state": [1]}]}}),
            ".items[0].status.containerStatuses[0].state",
        ),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_a_malformed_worker_is_waited_for(
    found: object, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert not launcher_of(found, lines)._are_workers_ready()
    assert lines == [f"the API server sent a malformed pod: pods{path}"]
    assert slept == [RETRY_SECONDS]


@pytest.mark.parametrize("found", ["x", [], {"metadata": 7}, {"metadata": {"uid": 7}}], ids=str)
def test_a_malformed_job_is_waited_for(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that fails would end an attempt of a job that may well run."""
    lines: list[str] = []
    monkeypatch.setattr("time.sleep", stop)
    with pytest.raises(TimeoutError):
        launcher_of(found, lines)._check_gate()
    assert lines[0].startswith("the API server sent a malformed job: job")


@pytest.mark.parametrize("kind", [AttributeError, KeyError, TypeError, ValueError])
def test_a_fault_of_its_own_ends_it(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be tried again without end, under the name of a malformed pod."""

    def fail(*_: object) -> str:
        raise kind("a fault of its own")

    monkeypatch.setattr("time.sleep", stop)
    monkeypatch.setattr("jobs.launcher.main.awaited", fail)
    with pytest.raises(kind, match="a fault of its own"):
        launcher_of(listed(), []).run()
