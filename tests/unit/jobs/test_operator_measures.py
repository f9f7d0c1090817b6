"""The operator's counters: restarts by cause, first starts, actions by name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ipuhub.kube.errors import Forbidden
from ipuhub.kube.events import EventRecorder
from jobs.ipujob.names import Kind
from jobs.operator.actions import CreateChild, Event, PatchStatus
from jobs.operator.metrics import (
    EVENTS_DROPPED,
    OPERATOR,
    PASS_SECONDS,
    UNWRITTEN,
    count_action,
    count_decision,
    is_first_start,
    restart_reasons,
)
from tests.builders.ipujobs import NOW, ipujob
from tests.fakes.counted import reset_metrics

ENTRY = {"index": 0, "attempt": 1, "state": "Restarting"}
LOST = ENTRY | {"lastExit": {"attempt": 0, "reason": "WorkerLost"}}


def test_a_restart_counts_once_under_what_ended_the_attempt_before() -> None:
    before = {"instances": [{"index": 0, "attempt": 0}]}
    assert restart_reasons(before, {"instances": [LOST]}) == ["WorkerLost"]
    assert restart_reasons({}, {"instances": [LOST]}) == ["WorkerLost"]
    assert restart_reasons({"instances": [LOST]}, {"instances": [LOST]}) == []
    assert restart_reasons(before, {"instances": [ENTRY]}) == []  # resumed, not restarted
    assert restart_reasons(before, {"launcherStatus": "Running"}) == []


def test_only_the_first_running_is_a_start() -> None:
    running = {"launcherStatus": "Running"}
    assert is_first_start({}, running)
    assert is_first_start({"launcherStatus": "Pending"}, running)
    assert not is_first_start({"launcherStatus": "Restarting"}, running)
    assert not is_first_start({"launcherStatus": "Pending", "instances": [ENTRY]}, running)
    assert not is_first_start({}, {"launcherStatus": "Failed"})


def test_the_page_shows_what_was_told() -> None:
    reset_metrics(OPERATOR)
    job = ipujob().build()
    job["metadata"]["creationTimestamp"] = NOW.isoformat()
    running = PatchStatus({"launcherStatus": "Running"}, (Event("IPUJobRunning", ""),))
    count_decision(job, running, NOW + timedelta(seconds=7))
    count_action(CreateChild(Kind.POD, {}), 0.5, ValueError("no"))
    PASS_SECONDS.labels("failed").observe(0.5)
    text = OPERATOR.render().decode()
    for line in (
        "ipuhub_job_start_duration_seconds_sum 7.0",
        'ipuhub_job_events_total{reason="IPUJobRunning"} 1.0',
        'ipuhub_operator_action_failures_total{action="CreatePod",error="ValueError"} 1.0',
        'ipuhub_operator_pass_duration_seconds_count{outcome="failed"} 1.0',
        'ipuhub_operator_action_duration_seconds_sum{action="CreatePod"} 0.5',
    ):
        assert line in text


async def test_an_event_that_the_api_server_refuses_is_counted() -> None:
    class Refusing:
        async def create(self, *_: Any) -> Any:
            raise Forbidden(403, "Forbidden", "no room for Events")

    client: Any = Refusing()
    recorder = EventRecorder(client, "ipu-operator", lambda: NOW)
    reset_metrics(OPERATOR)
    line = 'ipuhub_job_events_dropped_total{cause="unwritten"} '
    for _ in range(2):
        await recorder.record(ipujob().build(), reason="R", message="m")
        EVENTS_DROPPED.count_up({UNWRITTEN: recorder.dropped})
        page = OPERATOR.render().decode()
    assert line + "2.0" in page


def test_reasons_and_states_that_nobody_of_us_writes_are_one_series() -> None:
    reset_metrics(OPERATOR)
    for number in range(5):
        entry = ENTRY | {"lastExit": {"attempt": 0, "reason": f"Invented{number}"}}
        events = (Event(f"Invented{number}", ""),)
        count_decision(ipujob().build(), PatchStatus({"instances": [entry]}, events), NOW)
    page = OPERATOR.render().decode()
    assert 'ipuhub_job_restarts_total{reason="other"} 5.0' in page
    assert 'ipuhub_job_events_total{reason="other"} 5.0' in page
    assert "Invented" not in page
