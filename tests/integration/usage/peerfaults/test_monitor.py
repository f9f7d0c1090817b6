"""PrimeHub Usage's faults in its monitor of running pods, and what ours does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fakes.meter import NODE, spans

if TYPE_CHECKING:
    from tests.fakes.meter import Meter
    from tests.integration.usage.peerfaults.conftest import Accountant

pytestmark = pytest.mark.embedded_only
BEGAN = "2026-10-01T00:00:00Z"
QUIET = timedelta(hours=1)


def _ends(accountant: Accountant) -> dict[str, str]:
    return {pod["pod_name"]: pod["end_source"] for pod in accountant.listed("lifetimes")}


def test_08_silence_ends_no_pod(meter: Meter, accountant: Accountant) -> None:
    """There, 300 seconds without an event end every running pod."""
    for number in range(3):
        meter.pod(f"runs-{number}", spans(BEGAN), nodeName=NODE)
    with meter.probing():
        pass
    tally = meter.look(later=QUIET)
    assert (tally.checked, tally.present, tally.closed, tally.problem) == (3, 3, 0, "")
    assert set(_ends(accountant).values()) == {""}
    accountant.make()
    assert {row["estimated"] for row in accountant.rows("details")} == {"N"}


def test_08_events_of_other_pods_do_not_keep_the_monitor_from_looking(
    meter: Meter, accountant: Accountant
) -> None:
    """There, it looks when the whole cluster was quiet, which a busy cluster never is."""
    for name in ("gone", "runs", "busy"):
        meter.pod(name, spans(BEGAN), nodeName=NODE)
    with meter.probing():
        pass
    before = datetime.now(UTC)
    meter.delete("gone")
    for minute in range(1, 6):
        meter.change("busy", spans(BEGAN, f"2026-10-01T00:0{minute}:00Z"))
    tally = meter.look(later=QUIET)
    assert (tally.present, tally.closed) == (2, 1)
    assert _ends(accountant) == {"gone": "monitor", "runs": "", "busy": ""}
    (gone,) = [pod for pod in accountant.listed("lifetimes") if pod["pod_name"] == "gone"]
    assert gone["estimated"]
    assert datetime.fromisoformat(gone["finished_at"]) <= before
    assert gone["uncertainty_seconds"] >= QUIET.total_seconds()


def test_09_namespaces_are_all_alike_and_a_start_ends_nothing(
    meter: Meter, accountant: Accountant
) -> None:
    """There, it knows the namespace `hub`; elsewhere each of its starts ends all running pods."""
    for namespace in ("hub", "team-a"):
        for name in ("gone", "runs"):
            meter.pod(f"{name}-{namespace}", spans(BEGAN), namespace=namespace, nodeName=NODE)
    with meter.probing():
        pass
    for namespace in ("hub", "team-a"):
        meter.delete(f"gone-{namespace}", namespace)
    assert [meter.look(later=QUIET).closed for _ in range(3)] == [2, 0, 0]
    assert _ends(accountant) == {
        "gone-hub": "monitor",
        "gone-team-a": "monitor",
        "runs-hub": "",
        "runs-team-a": "",
    }
