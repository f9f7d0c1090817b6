"""Tables of pods: a pod in one line, as a 1.20 API server gave it for the same object."""

from __future__ import annotations

import pytest

from devcluster.printing.tables import as_table
from devcluster.schemas.kinds import BY_KIND
from tests.builders.tables import MADE, NOW, READY, cells


def _running(name="a", ready=True, restarts=0):
    return {"name": name, "ready": ready, "restartCount": restarts, "state": {"running": {}}}


def _waiting(reason, restarts=0):
    return {"ready": False, "restartCount": restarts, "state": {"waiting": {"reason": reason}}}


def _ended(restarts=0, **terminated):
    return {"ready": False, "restartCount": restarts, "state": {"terminated": terminated}}


@pytest.mark.parametrize(
    ("status", "want_ready", "want_status", "want_restarts"),
    [
        ({"phase": "Pending"}, "0/2", "Pending", 0),
        (
            {"phase": "Running", "containerStatuses": [_running(), _running("c", restarts=2)]},
            "2/2",
            "Running",
            2,
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [
                    _running(ready=False, restarts=1),
                    _waiting("CrashLoopBackOff", 1),
                ],
            },
            "0/2",
            "CrashLoopBackOff",
            2,
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [_ended(reason="Error", exitCode=3)] * 2,
            },
            "0/2",
            "Error",
            0,
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [_ended(reason="Completed", exitCode=0), _running("c")],
            },
            "1/2",
            "NotReady",
            0,
        ),
        (
            {
                "phase": "Running",
                "conditions": READY,
                "containerStatuses": [_ended(reason="Completed", exitCode=0), _running("c")],
            },
            "1/2",
            "Running",
            0,
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [_ended(reason="Completed", exitCode=0)]},
            "0/2",
            "Completed",
            0,
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [_running(ready=False), _waiting("PodInitializing")],
                "containerStatuses": [_waiting("PodInitializing")],
            },
            "0/2",
            "Init:0/2",
            0,
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [_ended(exitCode=0), _waiting("PodInitializing")],
            },
            "0/2",
            "Init:1/2",
            0,
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [_ended(reason="Error", exitCode=4, restarts=3)],
            },
            "0/2",
            "Init:Error",
            3,
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [_waiting("ImagePullBackOff")]},
            "0/2",
            "Init:ImagePullBackOff",
            0,
        ),
        (
            {"phase": "Failed", "containerStatuses": [_ended(exitCode=5)]},
            "0/2",
            "ExitCode:5",
            0,
        ),
        (
            {"phase": "Failed", "containerStatuses": [_ended(exitCode=137, signal=9)]},
            "0/2",
            "Signal:9",
            0,
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "0/2", "Evicted", 0),
    ],
)
def test_a_pod_is_summed_up_as_kubectl_shows_it(status, want_ready, want_status, want_restarts):
    names = [{"name": "a"}, {"name": "c"}]
    pod = {"spec": {"containers": names, "initContainers": names}, "status": status}
    assert cells("v1", "Pod", pod) == [
        "n",
        want_ready,
        want_status,
        want_restarts,
        "12s",
        *["<none>"] * 4,
    ]


def test_a_pod_that_is_being_deleted_is_terminating():
    metadata = {"deletionTimestamp": MADE}
    status = {"phase": "Running", "podIP": "10.1.1.1"}
    pod = {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}
    assert cells("v1", "Pod", pod)[1:7] == ["0/0", "Terminating", 0, "12s", "10.1.1.1", "n1"]
    lost = {**pod, "status": {"reason": "NodeLost"}}
    assert cells("v1", "Pod", lost)[2] == "Unknown"


@pytest.mark.parametrize(
    ("phase", "want_reason"),
    [("Succeeded", "Succeeded"), ("Failed", "Failed"), ("Running", None)],
)
def test_only_ended_pods_carry_the_condition_that_greys_them_out(phase, want_reason):
    pod = {"metadata": {"name": "n"}, "status": {"phase": phase}}
    row = as_table(BY_KIND["v1", "Pod"], [pod], None, NOW)["rows"][0]
    reasons = [condition["reason"] for condition in row.get("conditions", [])]
    assert reasons == ([want_reason] if want_reason else [])
