"""PrimeHub Usage's faults in what its reports add up, and what ours add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes.meter import condition, spans, usage

if TYPE_CHECKING:
    from tests.fakes.meter import Meter
    from tests.integration.usage.peerfaults.conftest import Accountant

pytestmark = pytest.mark.embedded_only
BEGAN = "2026-10-01T00:00:00Z"


def test_03_a_running_pod_is_counted_until_the_report_and_not_until_midnight(
    meter: Meter, accountant: Accountant
) -> None:
    """There, a pod that began an hour ago at 21:07 counts 3.88 hours, and 24 too many at 00:00."""
    meter.pod("runs", spans("2026-10-10T20:07:00Z"), requests={"cpu": "1"})
    with meter.probing():
        pass
    for now, want, runs in (
        ("2026-10-10T21:07:00", "1.00000", "Y"),
        ("2026-10-11T00:00:00", "3.88333", "Y"),
        ("2026-11-05T00:00:00", "507.88333", "N"),  # of October, whatever it did in November
    ):
        accountant.make(now=now)
        for kind in ("summary", "details"):
            (row,) = accountant.rows(kind, profile="primehub")
            assert (row["cpu_core_hours"], row["running"]) == (want, runs)


def test_04_sums_are_of_each_pod_s_own_size_times_its_own_time(
    meter: Meter, accountant: Accountant
) -> None:
    """There, the largest size is multiplied by all time: 1 CPU x 10 h + 4 CPU x 1 h make 44."""
    meter.pod("small", spans(BEGAN, "2026-10-01T10:00:00Z"), requests={"cpu": "1"})
    meter.pod("large", spans(BEGAN, "2026-10-01T01:00:00Z"), requests={"cpu": "4"})
    with meter.probing():
        pass
    accountant.make()
    for profile in ("default", "primehub"):
        (row,) = accountant.rows("summary", profile=profile)
        assert (row["cpu_core_hours"], row["usage_hours"]) == ("14.00000", "11.00000")


def test_05_lines_of_the_summary_say_what_makes_them_differ(
    meter: Meter, accountant: Accountant
) -> None:
    """There, lines are split by an instance type that they do not show."""
    for kind in ("cpu-1", "gpu-2"):
        meter.pod(kind, spans(BEGAN, "2026-10-01T01:00:00Z"), stamp=usage(instance_type=kind))
    with meter.probing():
        pass
    accountant.make()
    rows = accountant.rows("summary")
    named = ("namespace", "group", "user", "component", "instance_type", "running")
    assert [row["instance_type"] for row in rows] == ["cpu-1", "gpu-2"]
    assert len({tuple(row[name] for name in named) for row in rows}) == len(rows)


def test_06_a_pod_that_ended_unscheduled_does_not_spoil_the_month(
    meter: Meter, accountant: Accountant
) -> None:
    """There, one such pod alone in its group is a NULL that ends the whole run."""
    refused = [condition("PodScheduled", BEGAN, "False", "Unschedulable")]
    meter.pod(
        "refused", {"phase": "Failed", "conditions": refused}, stamp=usage(group="alone-in-it")
    )
    meter.pod("sound", spans(BEGAN, "2026-10-01T01:00:00Z"), requests={"cpu": "1"})
    with meter.probing():
        pass
    accountant.make()
    assert [row["group"] for row in accountant.rows("summary")] == ["vision"]
    assert [pod["pod_name"] for pod in accountant.listed("lifetimes", group="alone-in-it")] == [
        "refused"
    ]
