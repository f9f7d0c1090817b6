"""Faults of PrimeHub Usage in recording pods, and the rows that IPUHub records.

The numbers refer to the table in docs/developer/primehub-usage.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from tests.fakes.meter import NODE, condition, spans, usage

if TYPE_CHECKING:
    from tests.fakes.meter import Meter
    from tests.integration.usage.peerfaults.conftest import Accountant

pytestmark = pytest.mark.embedded_only
RAN = spans("2026-10-01T00:00:00Z", "2026-10-01T01:00:00Z")


def test_01_one_odd_pod_does_not_stop_the_accounting_of_all_others(
    meter: Meter, accountant: Accountant
) -> None:
    """There, invalid JSON, a missing key, a pod without requests or a name of more than 63
    characters ends the watch, which meets the same pod at every later start."""
    long_name, long_group = "n" * 253, "g" * 253
    meter.pod("no-json", RAN, stamp="{component: job")
    meter.pod("no-group", RAN, stamp='{"component": "job", "component_name": "x"}')
    meter.pod("no-requests", RAN)
    meter.pod("no-cpu", RAN, requests={"memory": "1Gi"})
    meter.pod(long_name, RAN, stamp=usage(group=long_group, user="u" * 64), requests={"cpu": "2"})
    meter.pod("sound", RAN, requests={"cpu": "1"})
    with meter.probing():
        pass
    accountant.make()
    rows = {row["pod_name"]: row for row in accountant.rows("details")}
    assert {name: (row["group"], row["cpu_core_hours"]) for name, row in rows.items()} == {
        "no-json": ("default", "0.00000"),
        "no-group": ("default", "0.00000"),
        "no-requests": ("vision", "0.00000"),
        "no-cpu": ("vision", "0.00000"),
        long_name: (long_group, "2.00000"),
        "sound": ("vision", "1.00000"),
    }
    assert rows["no-cpu"]["gb_memory_hours"] == "1.00000"
    faults = {fault["name"]: fault["code"] for fault in accountant.listed("faults")}
    assert faults == {"no-json": "usage-annotation", "no-group": "usage-annotation"}


def test_02_a_pod_that_was_never_scheduled_costs_nothing_and_its_wait_is_known(
    meter: Meter, accountant: Accountant
) -> None:
    """There, PodScheduled=False has a time as well, and is billed from it to the deletion."""
    waits = [condition("PodScheduled", "2026-10-01T00:00:00Z", "False", "Unschedulable")]
    meter.pod("waits", {"phase": "Pending", "conditions": waits}, requests={"cpu": "64"})
    with meter.probing():
        meter.recorded()
        meter.delete("waits")
    accountant.make()
    assert accountant.rows("details") == []
    (pod,) = accountant.listed("lifetimes")
    assert (pod["pod_name"], pod["scheduled_at"]) == ("waits", None)
    waited = [datetime.fromisoformat(pod[name]) for name in ("created_at", "finished_at")]
    assert waited[0] <= waited[1]


def test_07_a_pod_that_ends_before_it_begins_has_no_negative_hours(
    meter: Meter, accountant: Accountant
) -> None:
    """There, nodes whose clocks differ make hours below zero."""
    meter.pod(
        "skewed", spans("2026-10-01T02:00:00Z", "2026-10-01T00:00:00Z"), requests={"cpu": "1"}
    )
    with meter.probing():
        pass
    accountant.make()
    (row,) = accountant.rows("details")
    assert (row["seconds"], row["usage_hours"], row["cpu_core_hours"]) == (
        "0",
        "0.00000",
        "0.00000",
    )
    assert row["start_time"] == row["end_time"] == "2026-10-01T02:00:00Z"


@pytest.mark.parametrize("zone", ["Asia/Taipei", "America/New_York"])
def test_10_the_database_s_time_zone_moves_nothing(
    meter: Meter, accountant: Accountant, zone: str
) -> None:
    """There, instants are stored without their zone, in the zone of the database server."""
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"ALTER DATABASE {name} SET timezone TO '{zone}'")
        try:
            connection.close()
            meter.pod("first", spans("2026-10-01T00:00:01Z", "2026-10-01T00:00:02Z"))
            with meter.probing(options=""):
                pass
            accountant.make()
            (row,) = accountant.rows("details")
            (old,) = accountant.rows("details", profile="primehub")
            (pod,) = accountant.listed("lifetimes")
        finally:
            with connection.cursor() as last:
                last.execute(f"ALTER DATABASE {name} RESET timezone")
            connection.close()
    assert (row["start_time"], row["end_time"]) == ("2026-10-01T00:00:01Z", "2026-10-01T00:00:02Z")
    assert old["start_time"] == "2026-10-01 00:00:01"
    assert datetime.fromisoformat(pod["scheduled_at"]) == datetime(2026, 10, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("reason", ["Evicted", "NodeLost"])
def test_11_a_pod_without_an_end_of_its_containers_ends_with_its_phase(
    meter: Meter, accountant: Accountant, reason: str
) -> None:
    """There, a Failed pod whose containers have no finishedAt costs money forever."""
    began, noticed = "2026-10-01T00:00:00Z", "2026-10-01T02:00:00Z"
    meter.pod("lost", spans(began), requests={"cpu": "1"}, nodeName=NODE)
    with meter.probing():
        meter.recorded()
        lost = spans(began) | {"phase": "Failed", "reason": reason}
        lost["conditions"] += [condition("DisruptionTarget", noticed)]
        lost["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 137}}
        meter.change("lost", lost)
    accountant.make()
    (row,) = accountant.rows("details")
    assert (row["end_time"], row["cpu_core_hours"]) == (noticed, "2.00000")
    assert (row["estimated"], row["uncertainty_seconds"]) == ("Y", "300")
