"""The jobs that the API server lists for the pages of the present."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.fleetkept import visible_jobs_of
from dashboard.live import LiveState, list_jobs
from dashboard.overview.rows import live_jobs
from ipuhub.web.readings import Reading
from tests.builders.ipujobs import NOW, ipujob


class Server:
    """Lists one job."""

    def __init__(self, status: object) -> None:
        self.status = status

    async def list(self, _: object) -> Any:
        return SimpleNamespace(items=[ipujob().build() | {"status": self.status}])


@pytest.mark.parametrize(
    "status",
    [
        "x",
        [1],
        {"launcherStatus": [1]},
        {"workersStatus": "x"},
        {"workersStatus": {"active": [1]}},
        {"partitions": 7},
        {"partitions": [None]},
        {"startTime": 7},
        {"conditions": "x"},
    ],
    ids=str,
)
async def test_a_malformed_status_breaks_no_page_of_the_present(status: object) -> None:
    server: Any = Server(status)
    jobs = await list_jobs(server, [])
    assert live_jobs(jobs, lambda _: True, NOW).pending == 1
    everything: Any = SimpleNamespace(covers=lambda _: True)
    (facts,) = visible_jobs_of(LiveState(Reading(jobs)), everything, NOW).values()
    assert (facts.runs, facts.ends_by) == (False, None)
