"""Which component is named when something is down: the culprit, and nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard import components
from dashboard.components import DOWN, UNKNOWN, UP, Component, Signs

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def lease(age: float, holder: str = "pod-a", seconds: int = 15) -> Signs:
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "renewTime": ago(age).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "leaseDurationSeconds": seconds,
    }
    return Signs({"spec": spec})


@pytest.mark.parametrize(
    ("signs", "state", "says"),
    [
        (lease(2), UP, "leads"),
        (lease(30), UP, "leads"),
        (lease(31), DOWN, "has not renewed its Lease for 31 s"),
        (lease(100, seconds=60), UP, "leads"),
        (lease(5, holder=""), DOWN, "no replica leads"),
        (Signs(), UNKNOWN, "no Lease"),
        (Signs({"spec": {"holderIdentity": "x"}}), UNKNOWN, "says no time"),
        (Signs({"spec": {"holderIdentity": "x", "renewTime": "soon"}}), UNKNOWN, "says no time"),
        (Signs(problem="403 Forbidden"), UNKNOWN, "cannot be read: 403 Forbidden"),
    ],
)
def test_a_leader_is_judged_by_its_lease(signs: Signs, state: str, says: str) -> None:
    found = components.by_lease("IPU Operator", signs, NOW)
    assert found.state == state
    assert says in found.detail


def test_a_proxy_that_leads_and_does_not_answer_is_down() -> None:
    leads = components.by_lease("V-IPU Proxy", lease(2), NOW)
    assert components.of_proxy(leads, "connection refused").state == DOWN
    assert components.of_proxy(leads, "").state == UP
    without = components.by_lease("V-IPU Proxy", Signs(), NOW)
    assert components.of_proxy(without, "").state == UP
    frozen = components.by_lease("V-IPU Proxy", lease(99), NOW)
    assert components.of_proxy(frozen, "").state == DOWN


def test_a_silent_controller_is_named_and_not_the_proxy() -> None:
    fleet = {
        "controllers": [
            {"address": "v1:8090", "reachable": True, "message": "", "partitions": [1, 2]},
            {"address": "v2:8090", "reachable": False, "message": "refused", "partitions": []},
        ]
    }
    found = components.of_controllers(fleet)
    assert [(one.name, one.state, one.detail) for one in found] == [
        ("V-IPU controller v1:8090", UP, "2 partitions"),
        ("V-IPU controller v2:8090", DOWN, "refused"),
    ]


@pytest.mark.parametrize(
    ("positions", "state"),
    [([ago(5), ago(80)], UP), ([ago(5), ago(91)], DOWN), ([], UNKNOWN), ([ago(5), None], UNKNOWN)],
)
def test_a_prober_that_receives_nothing_is_down(positions: Any, state: str) -> None:
    leads = components.by_lease("Prober", lease(2), NOW)
    assert components.of_prober(leads, positions, NOW).state == state


@pytest.mark.parametrize(
    ("ended", "problem", "state"),
    [(ago(60), "", UP), (ago(211), "", DOWN), (ago(5), "the API server is away", DOWN)],
)
def test_a_monitor_is_judged_by_its_last_round(ended: Any, problem: str, state: str) -> None:
    assert components.of_monitor(ended, problem, 60, NOW).state == state


@pytest.mark.parametrize(
    ("heartbeat", "oldest", "busy", "states"),
    [
        (ago(40), None, False, (UP, UP)),
        (ago(40), ago(35), True, (UP, UP)),
        (ago(400), ago(300), False, (DOWN, UNKNOWN)),
        (ago(400), None, False, (UNKNOWN, DOWN)),
        (ago(400), ago(5), False, (UNKNOWN, DOWN)),
        (ago(400), ago(300), True, (UP, UNKNOWN)),
        (None, None, False, (UNKNOWN, UNKNOWN)),
        (None, ago(300), False, (DOWN, UNKNOWN)),
    ],
)
def test_worker_and_beat_are_told_apart(
    heartbeat: datetime | None, oldest: datetime | None, busy: bool, states: tuple[str, str]
) -> None:
    found = components.of_worker_and_beat(heartbeat, oldest, busy, NOW)
    assert tuple(one.state for one in found) == states
    assert [one.name for one in found] == ["Worker", "Beat"]


def test_the_header_names_the_culprits() -> None:
    def found(*states: str) -> list[Component]:
        return [Component(f"C{number}", state, "") for number, state in enumerate(states)]

    assert components.summary(found(UP, UP)) == (UP, "All 2 components up")
    assert components.summary(found(UP, UNKNOWN)) == (UNKNOWN, "1 of 2 components up")
    assert components.summary(found(DOWN, UP, UNKNOWN)) == (DOWN, "Down: C0")
    assert components.summary(found(DOWN, DOWN, DOWN)) == (DOWN, "Down: C0, C1 and 1 more")
