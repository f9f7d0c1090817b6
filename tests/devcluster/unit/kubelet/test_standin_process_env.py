"""The environment of a process-mode container, and its end within the pod's life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devcluster.kubelet.behaviour import Behaviour
from devcluster.kubelet.life import End, PodState, Situation
from devcluster.kubelet.machine import advance
from devcluster.kubelet.options import Durations
from devcluster.processes.podfiles import MissingError, build_env, expand, field_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "c", "d": "e"}},
    "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "main", "image": "i"}],
    },
}
TEXTS = {("ConfigMap", "known"): {"key": "value", "other": "x"}}


def look_up(kind: str, name: str) -> dict[str, str] | None:
    return TEXTS.get((kind, name))


def env_of(**container: Any) -> dict[str, str]:
    return build_env(POD, container, look_up, {"status.podIP": "10.0.0.1"})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)/x", "1/x"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$(A)$(A)", "11"),
    ],
)
def test_expansion(text: str, want: str) -> None:
    assert expand(text, {"A": "1"}) == want


def test_variables_come_from_fields_maps_and_each_other() -> None:
    found = env_of(
        envFrom=[{"configMapRef": {"name": "known"}, "prefix": "P_"}],
        env=[
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "URL", "value": "http://$(IP)"},
            {
                "name": "OPTIONAL",
                "valueFrom": {
                    "secretKeyRef": {"name": "absent", "key": "k", "optional": True},
                },
            },
        ],
    )
    want = {"P_key": "value", "P_other": "x", "IP": "10.0.0.1", "URL": "http://10.0.0.1"}
    assert found == want


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ({"configMapKeyRef": {"name": "absent", "key": "k"}}, 'configmap "absent" not found'),
        ({"configMapKeyRef": {"name": "known", "key": "k"}}, "couldn't find key k"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "has no resourceFieldRef"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], want: str) -> None:
    with pytest.raises(MissingError, match=want):
        env_of(env=[{"name": "X", "valueFrom": source}])


def test_labels_as_a_field() -> None:
    assert field_of(POD, "metadata.labels['a/b']", {}) == "c"
    assert field_of(POD, "metadata.labels", {}) == 'a/b="c"\nd="e"\n'


def run(pod: dict[str, Any], state: PodState, now: datetime, ends: dict[str, End]) -> Any:
    """Advance until nothing changes at once; return the last step."""
    while True:
        behaviour = Behaviour(pod, Durations())
        step = advance(pod, state, Situation(now, behaviour, "1.1.1.1", "2.2.2.2", ends=ends))
        if not step.is_changed:
            return step
        state = step.state


def test_a_process_ends_when_it_ends_and_not_by_annotations() -> None:
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": {"sim/runtime-seconds": "1"}}}
    step = run(pod, PodState.observed(pod), NOW, {})
    later = NOW + timedelta(hours=1)
    step = run(pod, step.state, later, {})
    status = step.state.status["containerStatuses"][0]
    assert "running" in status["state"]
    step = run(pod, step.state, later, {status["containerID"]: End(3, later, "why")})
    ended = step.state.status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "why")
    assert step.state.status["phase"] == "Failed"


def test_a_deletion_signals_and_waits_for_the_end() -> None:
    step = run(POD, PodState.observed(POD), NOW, {})
    identity = step.state.status["containerStatuses"][0]["containerID"]
    end = (NOW + timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    marks = {"deletionTimestamp": end, "deletionGracePeriodSeconds": 5}
    pod = {**POD, "metadata": {**POD["metadata"], **marks}}
    step = run(pod, step.state, NOW, {})
    assert (step.signals, step.remove) == ({identity: 15}, False)
    late = NOW + timedelta(seconds=6)
    step = run(pod, step.state, late, {})
    assert (step.signals, step.remove, step.wake_at) == ({identity: 9}, False, None)
    assert run(pod, step.state, late, {identity: End(137, late)}).remove
