"""Values of wrong types in a stored status, which a CRD without our schema lets through."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.fieldrules import FieldReader
from jobs.history.rows import row_of
from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.statusfields import status_schema
from jobs.ipujob.storedstatus import CARRIER, READ_STATUS, read_status, with_read_status
from jobs.operator.actions import PatchStatus
from jobs.operator.metrics import fill_jobs, restart_reasons
from jobs.operator.observer import waiting_order
from jobs.operator.ownership import trim_job
from jobs.operator.plan import plan
from jobs.operator.status import coalescing_seconds
from jobs.operator.statuscarrier import merged, recovered, with_carried_fields
from jobs.webhooks.review import Review
from jobs.webhooks.validating import judge
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.mutations import paths_of, with_value

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest
    from jobs.operator.actions import Plan

TIME = "2026-03-01T12:00:00Z"
STATUS: dict[str, Any] = {
    "launcherStatus": "Restarting",
    "conditions": [
        {
            "type": kind,
            "status": "True" if kind == "Restarting" else "False",
            "reason": "WorkerLost",
            "message": "a",
            "lastUpdateTime": TIME,
            "lastTransitionTime": TIME,
        }
        for kind in ("Pending", "Running", "Restarting")
    ],
    "workersStatus": {"active": 1, "succeeded": 0, "failed": 2},
    "iPUPartitionCreated": True,
    "restartCount": 1,
    "currentReplicas": 1,
    "desiredReplicas": 1,
    "lastMessage": "a",
    "startTime": TIME,
    "completionTime": TIME,
    "lastReconcileTime": TIME,
    "ipus": 4,
    "partitions": [
        {"instance": 0, "id": "p", "controller": "c", "message": "a", "state": "active"}
    ],
    "instances": [
        {
            "index": 0,
            "attempt": 1,
            "state": "Restarting",
            "restarts": 1,
            "losses": 1,
            "restartAt": "2026-03-01T12:00:09Z",
            "blockedSince": TIME,
            "reason": "a",
            "exitCode": 3,
            "message": "a",
            "log": "a",
            "lastExit": {
                "attempt": 0,
                "at": TIME,
                "reason": "WorkerLost",
                "exitCode": 3,
                "message": "a",
                "log": "a",
            },
        }
    ],
    "observedGeneration": 1,
}
VALUES = (None, True, -1, 1.5, 10**30, "x", "9999-12-31T23:59:59-01:00", [], {}, [1], {"a": 1})
JOBS = {
    "Pending": ipujob(),
    "Running": ipujob(),
    "Restarting": ipujob(),
    "Suspended": ipujob().with_spec(suspend=True),
    "Completed": ipujob().with_spec(ttlSecondsAfterFinished=60),
    "deleted": ipujob().deleted(),
    "invalid": ipujob().with_spec(cleanPodPolicy="x"),
}
MUTATIONS = [
    with_value({"status": STATUS}, path, value)["status"]
    for path in paths_of(STATUS, ("status",))
    for value in VALUES
]
MALFORMED = [status for status in MUTATIONS if read_status(status).malformed]


def stored(kind: str, status: object = STATUS) -> Manifest:
    """Return a job with this status, in the state of the kind if the status is whole."""
    states = {"Pending", "Running", "Suspended", "Completed"}
    if isinstance(status, dict) and status.get("launcherStatus") == "Restarting" and kind in states:
        status = {**status, "launcherStatus": kind}
    return JOBS[kind].build() | {"status": status}


def plan_of(job: Manifest, *, has_pods: bool) -> Plan:
    """The plan of a job, read in the ways of the operator's cache and observer."""
    pods = (worker(job).attempt(1).running(), launcher(job).attempt(1).running())
    world = observed(
        trim_job(job),
        *(pods if has_pods else ()),
        partitions=(partition(attempt=1),) if has_pods else (),
        with_children=True,
    )
    status = recovered(
        with_carried_fields(world.status()),
        world.pods,
        world.partitions,
        is_malformed=READ_STATUS in (world.job or {}),
    )
    return plan(replace(world, job={**(world.job or {}), "status": status}), at(60))


def patches(planned: Plan) -> list[PatchStatus]:
    return [action for action in planned.actions if isinstance(action, PatchStatus)]


def carrier(message: str) -> Manifest:
    return {"type": CARRIER, "status": "False", "message": message}


def test_all_fields_of_a_status_are_tried() -> None:
    def names(schema: Any, path: str = "") -> set[str]:
        fields = (schema.get("items") or schema).get("properties", {}).items()
        return {path}.union(*(names(inner, f"{path}.{name}") for name, inner in fields))

    tried = {
        "".join(f".{name}" for name in path if isinstance(name, str)) for path in paths_of(STATUS)
    }
    assert tried == names(status_schema())
    assert read_status(STATUS).malformed == ()
    assert read_status(STATUS).fields == STATUS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restartCount", -1),
        ("restartCount", 2**31),
        ("observedGeneration", 2**63),
        ("startTime", "yesterday"),
        ("startTime", "9999-12-31T23:59:59-01:00"),
        ("startTime", "0001-01-01T00:00:00+01:00"),
    ],
)
def test_a_value_that_cannot_be_counted_with_is_dropped(name: str, value: object) -> None:
    assert read_status({name: value, "lastMessage": "a"}).fields == {"lastMessage": "a"}


@pytest.mark.parametrize("kind", JOBS)
def test_no_status_breaks_a_plan(kind: str) -> None:
    for number, status in enumerate(MUTATIONS):
        plan_of(stored(kind, status), has_pods=number % 2 == 0)


def test_the_next_write_replaces_what_is_malformed() -> None:
    for status in MALFORMED:
        (patch,) = patches(plan_of(stored("Running", status), has_pods=True))
        before = status if isinstance(status, dict) else {}
        assert read_status(merged(before, patch.status)).malformed == (), status
        events = [event.message for event in patch.events if event.reason == "StatusMalformed"]
        named = ", ".join(read_status(status).malformed)
        assert events == [f"The operator dropped malformed values of {named}"]


def test_a_last_write_in_the_far_future_delays_no_write() -> None:
    assert coalescing_seconds({"lastReconcileTime": "9000-01-01T00:00:00Z"}, NOW) == 0
    assert coalescing_seconds({"lastReconcileTime": TIME}, NOW) > 0


def test_an_event_names_the_first_malformed_fields() -> None:
    conditions = [{"type": "a"}] * 7
    job = stored("Running", {"launcherStatus": "Running", "conditions": conditions})
    (patch,) = patches(plan_of(job, has_pods=True))
    assert patch.events[0].message == (
        "The operator dropped malformed values of status.conditions[0], status.conditions[1], "
        "status.conditions[2], status.conditions[3], status.conditions[4] and 2 more"
    )


def test_a_malformed_record_is_restored_from_the_pods() -> None:
    """A record at attempt 0 would wait forever for its pods of attempt 1."""
    for status in ("x", {"launcherStatus": "Running", "instances": [{"index": 0, "attempt": "1"}]}):
        job = stored("Running", status)
        (patch,) = patches(plan_of(job, has_pods=True))
        assert [entry["attempt"] for entry in patch.status["instances"]] == [1]


def test_a_carrier_with_wrong_types_carries_the_rest() -> None:
    own = {"instances": [{"index": "x"}, {"index": 1, "attempt": 2}], "ipus": "4"}
    status = {"conditions": [carrier(json.dumps(own))]}
    found = with_carried_fields(status)
    assert found == status | {"instances": [{"index": 1, "attempt": 2}]}


@pytest.mark.parametrize("text", ["", "7", "{", "[" * 100_000, '{"instances": 7}'])
def test_a_malformed_carrier_is_written_again(text: str) -> None:
    """The gate of a launcher waits for that."""
    job = stored("Running", {"launcherStatus": "Running", "conditions": [carrier(text)]})
    (patch,) = patches(plan_of(job, has_pods=True))
    assert patch.events[0].message.endswith("values of status.conditions")
    assert "conditions" in patch.status


def test_no_status_breaks_metrics_history_or_admission() -> None:
    edited = ipujob().ipus(8).build()
    for status in MUTATIONS:
        job = stored("Running", status)
        cached = trim_job(job)
        fill_jobs([cached])
        restart_reasons(cached["status"] or {}, STATUS)
        waiting_order(cached)
        row_of(job, "", NOW)
        judge(Review("u", "UPDATE", "ipujobs", "", "default", "ada", edited, job), NOBODYS)


def test_the_quick_check_finds_what_the_reading_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    more = (1.0, float("nan"), 0, 2**31, 2**63, -(10**9), -(10**9) - 1, False, [[]], [{}])
    times = ("2026-03-01", "2026-02-30T00:00:00Z", "2026-03-01t12:00:00z", "9999-12-31T23:59:59Z")
    paths = [*paths_of(STATUS, ("status",))][1:]
    tried = [
        with_value({"status": STATUS}, path, value)["status"]
        for path in paths
        for value in (*VALUES, *more, *times)
    ]
    found = [read_status(status).malformed for status in tried]
    monkeypatch.setattr(FieldReader, "is_whole", lambda _reader, _status: False)
    assert found == [read_status(status).malformed for status in tried]
    assert () in found


def test_a_status_without_malformed_fields_stays_the_same_object() -> None:
    job = stored("Running")
    assert with_read_status(job) is job
