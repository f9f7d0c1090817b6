"""The backoff of a job after failures whose cause another component has removed."""

from __future__ import annotations

from typing import Any, cast

from ipuhub.process.health import Health
from jobs.operator.operator import Operator, OperatorOptions
from tests.fakes.jobworld import Events
from tests.fakes.kube import FakeKube
from tests.fakes.partitions import FakePartitions


async def test_after_a_long_outage_no_job_rests_longer_than_half_a_minute() -> None:
    client = cast("Any", FakeKube())
    operator = Operator(client, FakePartitions(), Events(), Health(), OperatorOptions())
    queue = operator.controller.queue
    assert max(queue.add_rate_limited("uid") for _ in range(60)) <= 30
