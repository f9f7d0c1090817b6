"""The component named during an outage: only the cause, not its dependents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard import components
from dashboard.components import DOWN, PARTLY, UNKNOWN, UP, Component, Signs, TaskSigns

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SINCE = {"acquireTime": "2026-11-21T09:00:00.000000Z"}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def lease(age: float, holder: str = "pod-a", seconds: int = 15) -> Signs:
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "renewTime": ago(age).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "leaseDurationSeconds": seconds,
        "acquireTime": ago(300).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
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
        (Signs({"spec": {"holderIdentity": "x", **SINCE}}), UNKNOWN, "says no time"),
        (Signs({"spec": {"holderIdentity": "x", "renewTime": "soon"}}), UNKNOWN, "says no time"),
        (Signs(problem="403 Forbidden"), UNKNOWN, "cannot be read: 403 Forbidden"),
    ],
)
def test_a_leader_is_judged_by_its_lease(signs: Signs, state: str, says: str) -> None:
    found = components.by_lease("IPU Operator", signs, NOW)
    assert found.state == state
    assert says in found.detail
    assert (found.leads_since is not None) == (state == UP)


def test_a_leader_whose_lease_is_old_leads_no_more_even_if_it_only_waits() -> None:
    away = Component("Kubernetes API", DOWN, "")
    frozen = components.by_lease("Prober", lease(99), NOW)
    waits = components.with_heartbeat(frozen, ago(5), away, NOW)
    assert (waits.state, waits.leads_since) == (UP, None)
    leads = components.by_lease("Prober", lease(2), NOW)
    assert components.remembered(leads, ago(5), NOW).leads_since == ago(300)
    assert components.remembered(leads, ago(500), NOW).leads_since is None


def test_a_proxy_that_leads_and_does_not_answer_is_down() -> None:
    kubernetes = Component("Kubernetes API", UP, "answers")
    leads = components.by_lease("V-IPU Proxy", lease(2), NOW)
    assert components.of_answering(leads, "connection refused", kubernetes).state == DOWN
    assert components.of_answering(leads, "", kubernetes).state == UP
    without = components.by_lease("V-IPU Proxy", Signs(), NOW)
    assert components.of_answering(without, "", kubernetes).state == UP
    frozen = components.by_lease("V-IPU Proxy", lease(99), NOW)
    assert components.of_answering(frozen, "", kubernetes).state == DOWN


def test_without_the_api_server_its_silence_is_not_blamed_on_the_proxy() -> None:
    silent = Signs(problem="connection refused", is_silent=True)
    kubernetes = components.of_kubernetes([silent, silent])
    assert (kubernetes.state, kubernetes.detail) == (DOWN, "connection refused")
    proxy = components.by_lease("V-IPU Proxy", silent, NOW)
    assert components.of_answering(proxy, "no token for the proxy", kubernetes).state == UNKNOWN
    assert components.of_answering(proxy, "", kubernetes).state == UP


def test_an_api_server_that_refuses_answers() -> None:
    assert components.of_kubernetes([Signs(problem="403 Forbidden"), Signs()]).state == UP


def test_agents_are_counted_and_the_silent_ones_are_named() -> None:
    def machine(agent: str, **more: str) -> dict[str, Any]:
        return {"agent": agent, "ipus": []} | more

    machines = [machine("ag0"), machine("ag1", lost="ag1 has not answered"), machine("ag2")]
    fleet = {
        "controllers": [
            {"address": "v1:8090", "reachable": True, "machines": machines},
            {"address": "v2:8090", "reachable": True, "machines": machines[:1]},
            {"address": "v3:8090", "reachable": False, "machines": machines},
            {"address": "v4:8090", "reachable": True, "machines": [machine("")]},
        ]
    }
    found = components.of_agents(fleet)
    assert [(one.name, one.state, one.detail, one.member_count, one.absent) for one in found] == [
        ("V-IPU agents of v1:8090", DOWN, "2 of 3 answer", 3, ("ag1",)),
        ("V-IPU agents of v2:8090", UP, "1 of 1 answer", 1, ()),
    ]
    assert found[0].members == ("ag0", "ag1", "ag2")
    assert components.summary(found) == (DOWN, "Down: V-IPU agent ag1 of v1:8090")


def test_what_was_observed_long_ago_is_not_known_any_more() -> None:
    found = Component("IPU Operator", DOWN, "stopped", "pod-a", ago(500))
    assert components.remembered(found, ago(80), NOW) == found
    old = components.remembered(found, ago(91), NOW)
    assert (old.state, old.since, old.holder) == (UNKNOWN, ago(500), "pod-a")
    assert old.detail == "not observed for 91 s; before that it was down"


@pytest.mark.parametrize(
    ("heartbeat", "state"), [(ago(100), UP), (ago(121), DOWN), (None, UNKNOWN)]
)
def test_a_dashboard_is_judged_by_its_heartbeat(heartbeat: datetime | None, state: str) -> None:
    assert components.by_heartbeat("Dashboard", heartbeat, NOW, "works").state == state


def test_a_silent_controller_is_named_and_not_the_proxy() -> None:
    fleet = {
        "controllers": [
            {"address": "v1:8090", "reachable": True, "message": "", "partitions": [1, 2]},
            {"address": "v2:8090", "reachable": False, "message": "refused", "partitions": []},
            {
                "address": "v3:8090",
                "reachable": True,
                "message": "",
                "unansweredOrders": "no answer to creations: none sent",
                "partitions": [1],
            },
            {"address": "v4:8090", "reachable": True, "message": "", "partitions": [1]},
        ]
    }
    found = components.of_controllers(fleet)
    assert [(one.name, one.state, one.detail) for one in found] == [
        ("V-IPU controller v1:8090", UP, "2 partitions"),
        ("V-IPU controller v2:8090", DOWN, "refused"),
        ("V-IPU controller v3:8090", DOWN, "no answer to creations: none sent"),
        ("V-IPU controller v4:8090", UP, "1 partition"),
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
    ("judged", "heartbeat", "kubernetes", "want"),
    [
        ((UP, "records"), ago(20), UP, (UP, "records")),
        ((UP, "records"), ago(121), UP, (DOWN, "last heartbeat 2 min 1 s ago")),
        ((UNKNOWN, "no round"), ago(121), DOWN, (DOWN, "last heartbeat 2 min 1 s ago")),
        ((DOWN, "last round 5 min ago"), ago(400), UP, (DOWN, "last round 5 min ago")),
        ((DOWN, "last round 5 min ago"), ago(20), UP, (DOWN, "last round 5 min ago")),
        ((DOWN, "last round 5 min ago"), ago(20), DOWN, (UP, "waits for the Kubernetes API")),
        ((DOWN, "last round 5 min ago"), ago(400), DOWN, (DOWN, "last round 5 min ago")),
        ((DOWN, "last round 5 min ago"), None, DOWN, (DOWN, "last round 5 min ago")),
        ((UP, "records"), None, UP, (UP, "records")),
    ],
)
def test_who_is_alive_and_waits_for_the_api_server_is_not_down(
    judged: tuple[str, str],
    heartbeat: datetime | None,
    kubernetes: str,
    want: tuple[str, str],
) -> None:
    found = components.with_heartbeat(
        Component("Prober", *judged, holder="pod-a"),
        heartbeat,
        Component("Kubernetes API", kubernetes, ""),
        NOW,
    )
    assert (found.name, found.state, found.detail, found.holder) == ("Prober", *want, "pod-a")


def test_a_sentence_with_the_age_of_the_last_sign_of_life_says_so() -> None:
    silent = components.by_heartbeat("Prober", ago(400), NOW, "")
    old = components.by_lease("Prober", lease(600), NOW)
    late = components.of_prober(components.by_lease("Prober", lease(2), NOW), [ago(200)], NOW)
    monitor = components.of_monitor(ago(400), "", 60, NOW)
    frozen = components.with_heartbeat(Component("Prober", UP, ""), ago(400), monitor, NOW)
    for dated in (silent, old, late, monitor, frozen):
        assert (dated.state, dated.is_dated, " s" in dated.detail) == (DOWN, True, True), dated
    api = Component("Kubernetes API", UP, "")
    mute = components.of_answering(old, "no answer", api)
    unknown = components.of_answering(old, "no answer", Component("Kubernetes API", DOWN, ""))
    assert [
        each.is_dated for each in (mute, unknown, components.remembered(old, ago(400), NOW))
    ] == [False] * 3


@pytest.mark.parametrize(
    ("signs", "states"),
    [
        (TaskSigns(ago(40), ago(40), ago(40)), (UP, UP)),
        (TaskSigns(ago(40), ago(40), ago(40), waits_since=ago(5)), (UP, UP)),
        (TaskSigns(ago(400), ago(40), ago(400)), (DOWN, UP)),
        (TaskSigns(ago(400), ago(40), ago(400), is_busy=True), (DOWN, UP)),
        (TaskSigns(ago(40), ago(400), ago(400)), (UP, DOWN)),
        (TaskSigns(ago(400), ago(400), ago(400)), (DOWN, DOWN)),
        (TaskSigns(ago(40), ago(40), ago(400), waits_since=ago(31)), (DOWN, UP)),
        (TaskSigns(ago(40), ago(40), ago(400), ago(300), is_busy=True), (UP, UP)),
        (TaskSigns(ago(40), ago(40), ago(400)), (UP, DOWN)),
        (TaskSigns(ago(40), ago(40), None), (UP, UP)),
        (TaskSigns(), (UNKNOWN, UNKNOWN)),
        (TaskSigns(is_busy=True), (UNKNOWN, UNKNOWN)),
        (TaskSigns(None, ago(40), None, waits_since=ago(300)), (DOWN, UP)),
    ],
)
def test_worker_and_beat_are_told_apart(signs: TaskSigns, states: tuple[str, str]) -> None:
    found = components.of_worker_and_beat(signs, NOW)
    assert tuple(one.state for one in found) == states
    assert [one.name for one in found] == ["Worker", "Beat"]


def test_the_header_names_the_culprits() -> None:
    def found(*states: str) -> list[Component]:
        return [Component(f"C{number}", state, "") for number, state in enumerate(states)]

    assert components.summary(found(UP, UP)) == (UP, "All 2 components up")
    partly = "1 of 3 components up; not known: C1, C2"
    assert components.summary(found(UP, UNKNOWN, UNKNOWN)) == (PARTLY, partly)
    nothing = "Nothing is known of the components"
    assert components.summary(found(UNKNOWN, UNKNOWN)) == (UNKNOWN, nothing)
    assert components.summary(found(DOWN, UP, UNKNOWN)) == (DOWN, "Down: C0")
    assert components.summary(found(DOWN, DOWN, DOWN)) == (DOWN, "Down: C0, C1 and 1 more")


def test_of_many_culprits_the_header_says_how_many_of_which_kind() -> None:
    agents = [
        Component(f"V-IPU agents of v{n}.vipu:8090", DOWN, "", absent=(f"a{n}", f"b{n}"))
        for n in range(32)
    ]
    controllers = [Component(f"V-IPU controller v{n}.vipu:8090", DOWN, "") for n in range(32)]
    brief, _, more = components.summary(agents)[1].partition("; ")
    assert brief == "Down: 64 V-IPU agents"
    assert more.startswith("2 V-IPU agents of v0.vipu:8090, 2 V-IPU agents of v1.vipu:8090, ")
    assert more.endswith(" and 22 more")
    both = components.summary([*controllers, *agents])[1].partition(";")[0]
    assert both == "Down: 32 V-IPU controllers, 64 V-IPU agents"
    webhooks, one = Component("Webhooks", DOWN, ""), controllers[:1]
    three = components.summary([webhooks, *agents, *controllers])[1].partition(";")[0]
    assert three == "Down: Webhooks, 64 V-IPU agents and more"
    long = Component(f"V-IPU controller {'a' * 60}:8090", DOWN, "")
    assert components.summary([long])[1] == f"Down: 1 V-IPU controller; {long.name}"
    assert components.summary(one)[1] == "Down: V-IPU controller v0.vipu:8090"
