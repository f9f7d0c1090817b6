"""Rows of IPUJobs, from manifests of the API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.history.rows import Size, row_of, size_of
from jobs.history.specs import storable_json
from jobs.ipujob.conditions import JobState, Verdict, plain_verdict, with_verdict
from jobs.ipujob.names import format_time
from jobs.ipujob.spec import parse_spec
from jobs.ipujob.validation import problems
from tests.builders.ipujobs import at, ipujob

SEEN = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
PATH = "default/sample"


def moment(seconds: float) -> str:
    return format_time(at(seconds))


def status_through(*states: tuple[float, JobState], **fields: Any) -> dict[str, Any]:
    """The status that the operator's own rules make of these states, one after another."""
    conditions: list[dict[str, Any]] = []
    for seconds, state in states:
        conditions = with_verdict(conditions, plain_verdict(state, PATH), PATH, moment(seconds))
    return {
        "launcherStatus": states[-1][1].value,
        "conditions": conditions,
        "startTime": moment(states[0][0]),
    } | fields


def row(status: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    job = ipujob().with_status(**(status or {})).build()
    return row_of(job, "team", SEEN, **kwargs)


def story(found: Any) -> list[tuple[datetime, str, bool]]:
    return sorted((one.at, one.state, one.is_inferred) for one in found.transitions)


@dataclass
class SizeCase:
    says: str
    spec: dict[str, Any]
    want: Size
    is_valid: bool = True


TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}
SIZES = [
    SizeCase(
        "alpha shape, numbers as text",
        {
            "modelReplicas": "4",
            "ipusPerModelReplica": "2",
            "workers": {"replicas": 2, "template": TEMPLATE},
        },
        Size(8, 1, 2),
    ),
    SizeCase(
        "1.x shape with instances",
        {
            "ipusPerJobInstance": "4",
            "jobInstances": 3,
            "workersPerJobInstance": 2,
            "workers": {"template": TEMPLATE},
        },
        Size(12, 3, 6),
    ),
    SizeCase(
        "1.x shape falls back to workers.replicas",
        {"ipusPerJobInstance": 4, "workers": {"replicas": 5, "template": TEMPLATE}},
        Size(4, 1, 5),
    ),
    SizeCase("an empty spec", {}, Size(0, 1, 1), is_valid=False),
    SizeCase(
        "no number where one belongs",
        {"ipusPerJobInstance": "many", "jobInstances": [], "workers": "none"},
        Size(0, 1, 1),
        is_valid=False,
    ),
    SizeCase(
        "negative and immense numbers stay in the column's range",
        {"ipusPerJobInstance": 10**12, "jobInstances": -3, "workers": {"replicas": -1}},
        Size(0, 0, 0),
        is_valid=False,
    ),
    SizeCase(
        "half of the alpha shape",
        {"modelReplicas": 4, "workers": {"replicas": 1}},
        Size(0, 1, 1),
        is_valid=False,
    ),
]


@pytest.mark.parametrize("case", SIZES, ids=lambda case: case.says)
def test_size_is_read_from_both_shapes_and_never_raises(case: SizeCase) -> None:
    assert size_of(case.spec) == case.want
    if case.is_valid:
        case.spec["launcher"] = {"command": ["true"]}
        if case.want.instances > 1:
            del case.spec["launcher"]
        assert not problems("sample", case.spec)
        parsed = parse_spec(case.spec)
        ipus = parsed.instances * parsed.partition_size
        assert case.want == (ipus, parsed.instances, parsed.total_workers)


def test_a_job_nobody_has_looked_at_is_pending() -> None:
    found = row()
    assert (found.status, found.reason, found.message) == ("Pending", "", "")
    assert found.created_at == at(0)
    assert found.transitions == found.attempts == ()
    assert (found.started_at, found.completed_at, found.deleted_at) == (None, None, None)


def test_facts_of_a_running_job() -> None:
    status = status_through(
        (1, JobState.PENDING),
        (5, JobState.RUNNING),
        lastMessage="IPUJob default/sample is running.",
        restartCount=2,
        partitions=[{"instance": 0, "id": "p-1", "controller": "v:8090", "state": "active"}],
        instances=[{"index": 0, "attempt": 0, "state": "Running"}],
    )
    found = row(status)
    assert (found.status, found.reason, found.restart_count) == ("Running", "IPUJobRunning", 2)
    assert found.message == "IPUJob default/sample is running."
    assert found.size == Size(4, 1, 1)
    assert found.partitions[0]["id"] == "p-1"
    assert found.started_at == at(5)
    assert story(found) == [(at(1), "Pending", True), (at(5), "Running", False)]
    (attempt,) = found.attempts
    assert (attempt.outcome, attempt.began_at, attempt.ended_at) == ("Running", at(1), None)


@dataclass
class StoryCase:
    says: str
    states: list[tuple[float, JobState]]
    want: list[tuple[float, str, bool]] = field(default_factory=list)


STORIES = [
    StoryCase(
        "seen only at its end",
        [(1, JobState.PENDING), (5, JobState.RUNNING), (60, JobState.COMPLETED)],
        [(1, "Pending", True), (5, "Running", True), (60, "Completed", False)],
    ),
    StoryCase(
        "never ran",
        [(1, JobState.PENDING), (9, JobState.FAILED)],
        [(1, "Pending", True), (9, "Failed", False)],
    ),
    StoryCase(
        "pending and running within one second",
        [(1, JobState.PENDING), (1, JobState.RUNNING), (7, JobState.COMPLETED)],
        [(1, "Pending", True), (1, "Running", True), (7, "Completed", False)],
    ),
    StoryCase(
        "runs again after a restart",
        [
            (1, JobState.PENDING),
            (5, JobState.RUNNING),
            (20, JobState.RESTARTING),
            (30, JobState.RUNNING),
        ],
        [(1, "Pending", True), (5, "Restarting", True), (30, "Running", False)],
    ),
    StoryCase(
        "suspended from the start",
        [(1, JobState.SUSPENDED)],
        [(1, "Pending", True), (1, "Suspended", False)],
    ),
]


@pytest.mark.parametrize("case", STORIES, ids=lambda case: case.says)
def test_transitions(case: StoryCase) -> None:
    want = [(at(seconds), state, inferred) for seconds, state, inferred in case.want]
    assert story(row(status_through(*case.states))) == sorted(want)


def test_the_cause_of_a_wait_is_kept() -> None:
    verdict = Verdict(JobState.PENDING, "NoCapacity", "8 IPUs in one block are needed, 4 are free")
    conditions = with_verdict([], plain_verdict(JobState.PENDING, PATH), PATH, moment(1))
    conditions = with_verdict(conditions, verdict, PATH, moment(4))
    found = row({"launcherStatus": "Pending", "conditions": conditions})
    assert found.reason == "NoCapacity"
    (one,) = found.transitions
    assert (one.at, one.state, one.reason) == (at(1), "Pending", "NoCapacity")
    assert one.message == verdict.message


def test_a_restart_tells_how_the_attempt_before_ended() -> None:
    last = {"attempt": 0, "at": "2026-03-01T12:00:05Z", "reason": "IPUJobFailed", "exitCode": 3}
    entry = {"index": 1, "attempt": 1, "state": "Restarting", "lastExit": last}
    first, second = row({"startTime": "2026-03-01T12:00:00Z", "instances": [entry]}).attempts
    assert (first.instance, first.attempt, first.outcome, first.exit_code) == (1, 0, "Failed", 3)
    assert (first.began_at, first.ended_at) == (at(0), at(5))
    assert (second.attempt, second.outcome, second.began_at) == (1, "Restarting", at(5))


def test_attempts_end_with_the_job_and_later_ones_begin_with_its_state() -> None:
    status = status_through(
        (1, JobState.PENDING),
        (5, JobState.RUNNING),
        (60, JobState.FAILED),
        completionTime=moment(60),
        instances=[
            {
                "index": 0,
                "attempt": 0,
                "state": "Failed",
                "reason": "IPUJobFailed",
                "exitCode": 137,
            },
            {"index": 1, "attempt": 2, "state": "Completed", "exitCode": 0},
        ],
    )
    first, second = row(status).attempts
    assert (first.outcome, first.exit_code, first.reason) == ("Failed", 137, "IPUJobFailed")
    assert (first.began_at, first.ended_at) == (at(1), at(60))
    assert (second.instance, second.attempt, second.exit_code) == (1, 2, 0)
    assert second.began_at == at(60)


def test_deletion_takes_the_time_of_the_request_else_the_time_of_the_event() -> None:
    requested = row_of(ipujob().deleted(90).build(), "", SEEN, is_deleted=True)
    assert requested.deleted_at == at(90)
    assert row(is_deleted=True).deleted_at == SEEN
    assert row_of(ipujob().deleted(90).build(), "", SEEN).deleted_at is None


def test_who_made_it_and_for_which_group() -> None:
    job = ipujob().annotated(**{"ipuhub.io/created-by": "ada"}).build()
    found = row_of(job, "team-a", SEEN)
    assert (found.user, found.group) == ("ada", "team-a")
    assert row().user == ""


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": "none", "instances": 3, "partitions": None},
        {"conditions": [None, 7, {"type": "Odd", "status": "True"}], "instances": ["x"]},
        {"launcherStatus": 5, "restartCount": "many", "startTime": "yesterday"},
        {"conditions": [{"type": "Running", "status": "True", "lastTransitionTime": "soon"}]},
        {"conditions": [{"type": ["Running"], "status": "False", "lastTransitionTime": moment(1)}]},
    ],
)
def test_a_status_that_makes_no_sense_gives_a_row_all_the_same(status: dict[str, Any]) -> None:
    found = row(status)
    assert found.uid == "uid-sample"
    assert found.restart_count == 0


def test_text_that_postgres_cannot_store_is_shown_as_replaced() -> None:
    assert storable_json({"a\x00": ["x\x00y", "\ud800", 3, None, "ä"]}) == {
        "a\ufffd": ["x\ufffdy", "\ufffd", 3, None, "ä"]
    }


def test_each_attempt_keeps_how_it_failed_and_its_last_lines_bounded_and_clean() -> None:
    last = {"attempt": 0, "at": moment(40), "message": "it exited", "log": "\x1b[31mred\x07"}
    entry = {"index": 0, "attempt": 1, "state": "Failed", "message": "again", "log": "x" * 9000}
    first, second = row({"instances": [entry | {"lastExit": last}]}).attempts
    assert (first.message, first.log) == ("it exited", "red")
    assert (second.message, len(second.log)) == ("again", 2048)
