"""The memory of the recorder of Events stays bounded, however long it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ipuhub.kube.events import EventRecorder


class Server:
    """Takes every Event."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    async def create(self, resource: Any, body: dict[str, Any]) -> dict[str, Any]:
        self.counts[body["metadata"]["name"]] = 1
        return body

    async def patch(self, resource: Any, name: str, change: Any, namespace: str) -> None:
        self.counts[name] = change["count"]


async def test_only_events_that_may_be_counted_up_and_budgets_in_use_are_remembered() -> None:
    now, server = datetime(2026, 3, 1, 12, 0, tzinfo=UTC), Server()
    recorder = EventRecorder(server, "c", lambda: now)  # type: ignore[arg-type]
    for minute in range(60):
        job = {"kind": "IPUJob", "metadata": {"name": f"j{minute}", "namespace": "d", "uid": ""}}
        for regarding in ({**job, "metadata": {**job["metadata"], "name": "steady"}}, job):
            await recorder.record(regarding, reason="R", message="m")
        now += timedelta(minutes=1)
    assert len(recorder._seen) == 10 + 1
    assert len(recorder._budgets) == 5 + 1  # one Event is made up for after five minutes
    assert len(server.counts) == 60 + 1  # the steady object has one Event
