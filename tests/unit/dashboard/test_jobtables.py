"""The tables of a job's pages: amounts of one column have one precision."""

from __future__ import annotations

import datetime as dt

import pytest

from dashboard.job.tables import usage_table
from dashboard.job.usage import Held, JobUsage
from ipuhub.templatetags.lists import in_one_precision
from usage.models import PodLifetime

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([], []),
        ([0.0], ["0.00"]),
        ([1234.5, 0.25, 0.0], ["1,234.50", "0.25", "0.00"]),
        ([12.0, 0.042], ["12.000", "0.042"]),
        ([12.0, 0.0042], ["12.0000", "0.0042"]),
        ([12.0, 0.00001], ["12.0000", "< 0.0001"]),
    ],
)
def test_a_column_has_the_decimals_that_its_smallest_amount_deserves(
    values: list[float], want: list[str]
) -> None:
    assert in_one_precision(values) == want


def pod(name: str, seconds: int, ipus: int) -> PodLifetime:
    began = NOW - dt.timedelta(seconds=seconds)
    amounts = {"micro_ipus": ipus * 10**6, "cpu_millicores": 2000, "memory_bytes": 2**30}
    return PodLifetime(pod_name=name, scheduled_at=began, finished_at=NOW, **amounts)


def test_what_the_pods_of_a_job_used_stands_in_one_precision_down_each_column() -> None:
    pods = [pod("short", 15, 4), pod("long", 36_000, 4), PodLifetime(pod_name="waits")]
    usage = JobUsage(NOW, NOW, 3, 0, 0, 0, 0)
    table = usage_table(Held(pods, [], 0, usage), NOW)
    numbers = [[cell.value for cell in row if cell.kind == "number"][-3:] for row in table.cells]
    assert numbers == [["0.017", "0.0083", "0.0042"], ["40.000", "20.0000", "10.0000"]]
