"""Events beside the work: in order, never lost at an orderly end, never without bound."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from ipuhub.kube.prioritygate import LowPriorityGate
from jobs.operator import eventwriter
from jobs.operator.controller import low_priority_writes
from jobs.operator.eventwriter import EventWriter
from jobs.operator.metrics import OPERATOR
from tests.fakes.counted import metric_value

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


class SlowRecorder:
    """Writes an Event only while `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.written: list[tuple[str, str]] = []
        self.times: list[datetime] = []
        self.at_work = 0

    async def record(
        self,
        regarding: Any,
        *,
        type: str,  # noqa: A002
        reason: str,
        message: str,
        at: datetime,
    ) -> None:
        assert type == "Normal"
        self.times.append(at)
        self.at_work += 1
        try:
            await self.open.wait()
        finally:
            for _ in range(3):  # a request that is broken off takes some turns to end
                await asyncio.sleep(0)
            self.at_work -= 1
        self.written.append((regarding["metadata"]["uid"], f"{reason} {message}"))


def job(uid: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": f"job-{uid}", "uid": uid}}


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_nobody_waits_and_each_jobs_events_stay_in_order_to_the_end() -> None:
    recorder = SlowRecorder()
    writer = EventWriter(recorder, low_priority_writes(), lambda: NOW)
    task = asyncio.create_task(writer.run())
    for number in range(3):
        for uid in ("a", "b", "c"):
            await writer.record(job(uid), type="Normal", reason="R", message=str(number))
    await asyncio.sleep(0)
    assert recorder.written == []
    recorder.open.set()
    await stop(task)
    for uid in ("a", "b", "c"):
        assert [text for of, text in recorder.written if of == uid] == ["R 0", "R 1", "R 2"]
    assert writer.dropped == 0


async def test_what_finds_no_room_or_no_time_is_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(eventwriter, "MOST_WAITING", 2)
    monkeypatch.setattr(eventwriter, "LAST_SECONDS", 0.0)
    name = "ipuhub_job_events_dropped_total"
    before = metric_value(OPERATOR, name, cause="backlog")
    recorder = SlowRecorder()
    writer = EventWriter(recorder, low_priority_writes(), lambda: NOW)
    for number in range(5):
        await writer.record(job("a"), type="Normal", reason="R", message=str(number))
    assert writer.dropped == 3
    task = asyncio.create_task(writer.run())
    while not recorder.at_work:
        await asyncio.sleep(0)
    await stop(task)
    assert recorder.at_work == 0  # its connection may be closed now
    assert writer.dropped == 5
    assert metric_value(OPERATOR, name, cause="backlog") == before + 5


async def test_events_wait_for_a_lull_and_not_longer_than_the_patience() -> None:
    recorder = SlowRecorder()
    recorder.open.set()
    for patience, want_before in ((60.0, []), (0.0, ["R first"])):
        gate = LowPriorityGate(patience)
        end_of_pass = gate.begin()
        writer = EventWriter(recorder, gate, lambda: NOW)
        task = asyncio.create_task(writer.run())
        await writer.record(job("a"), type="Normal", reason="R", message="first")
        for _ in range(20):
            await asyncio.sleep(0)
        assert [text for _, text in recorder.written] == want_before
        end_of_pass()
        await stop(task)
        assert [text for _, text in recorder.written] == ["R first"]
        recorder.written.clear()


async def test_an_event_has_the_time_at_which_it_was_recorded() -> None:
    now = NOW
    recorder = SlowRecorder()
    recorder.open.set()
    gate = LowPriorityGate(60.0)
    end_of_pass = gate.begin()
    writer = EventWriter(recorder, gate, lambda: now)
    task = asyncio.create_task(writer.run())
    await writer.record(job("a"), type="Normal", reason="R", message="m")
    await asyncio.sleep(0)
    now += timedelta(seconds=2)
    end_of_pass()
    await stop(task)
    assert recorder.times == [NOW]


async def test_an_event_is_in_the_log_as_well_with_the_jobs_uid() -> None:
    """The API server forgets Events after an hour."""
    writer = EventWriter(SlowRecorder(), low_priority_writes(), lambda: NOW)
    with structlog.testing.capture_logs() as logged:
        await writer.record(job("a"), type="Normal", reason="Running", message="it runs")
    want = {"event": "event", "log_level": "info", "reason": "Running", "message": "it runs"}
    assert logged == [want | {"job": "default/job-a", "job_uid": "a"}]
