"""Messages of the admission webhooks to a kubectl user, and the behaviour of edited jobs."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from devcluster.demo.samples import TEAMS
from tests.e2e.running_demo import EXAMPLES
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.running_demo import RunningDemo

NAMESPACE = "hooked"


def manifest(name: str, example: str = "single-gcd-sample.yaml", **spec: Any) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / example).read_text())
    job["metadata"] = {"name": name, "annotations": {}}
    job["spec"].update(spec)
    return job


def apply(demo: RunningDemo, job: dict[str, Any], *options: str) -> str:
    """Apply a job; return what kubectl says, or "" when it was content."""
    done = demo.try_kubectl("apply", *options, "-f", "-", stdin=json.dumps(job))
    assert done.returncode == 0 or done.stderr
    return done.stderr


def condition(demo: RunningDemo, name: str, kind: str) -> dict[str, Any]:
    found = demo.job(name).get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind and one["status"] == "True"), {})


def pods(demo: RunningDemo) -> list[str]:
    return demo.kubectl("get", "pods", "-o", "name").split()


@pytest.fixture
def researcher(demo: RunningDemo) -> Iterator[str]:
    """A user who may make IPUJobs in a namespace, and nothing else."""
    demo.kubectl("create", "namespace", NAMESPACE)
    role = ("create", "role", "jobs", "-n", NAMESPACE, "--resource=ipujobs.graphcore.ai")
    demo.kubectl(*role, "--verb=get,list,create,patch,delete")
    demo.kubectl("create", "rolebinding", "jobs", "-n", NAMESPACE, "--role=jobs", "--user=ada")
    yield "ada"
    demo.kubectl("delete", "ipujobs", "--all", "-n", NAMESPACE, "--timeout=120s")
    demo.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def test_all_problems_are_said_at_once_with_their_fields(demo: RunningDemo) -> None:
    job = manifest(
        "bad",
        modelReplicas="6",
        interactive={"ttl": 60},
        restartPolicy={"type": "ExitCode", "exitCodes": "a-b"},
    )
    want = """The IPUJob "bad" is invalid:\x20
* spec.ipusPerModelReplica: modelReplicas x ipusPerModelReplica is 6 IPUs, which is not a power of \
two: use 4 or 8
* spec.launcher: an interactive job has no command: leave out launcher or interactive
* spec.restartPolicy.exitCodes: "a-b" is not a list of codes and ranges: \
use a list like "1,5,10-127"
"""
    assert apply(demo, job) == want
    assert demo.kubectl("get", "ipujobs", "-o", "name") == ""
    assert "is invalid" in apply(demo, job, "--dry-run=server")


def test_what_is_legal_and_hardly_meant_is_warned_of(demo: RunningDemo) -> None:
    job = manifest("odd", launcher={"command": ["mpirun", "-np", "9", "python3", "x.py"]})
    job["spec"]["workers"]["replicas"] = 2
    job["spec"]["workers"]["template"]["spec"]["restartPolice"] = "Never"
    output = apply(demo, job)
    assert output.count("Warning: ") == 2
    assert "Warning: spec.launcher.command: 9 processes exceed the 4 slots" in output
    assert "Warning: spec.workers.template.spec.restartPolice: unknown field" in output
    assert demo.job("odd")["spec"]["launcher"]["command"][2] == "9"


def test_who_made_a_job_is_written_down_whatever_he_claims(
    demo: RunningDemo, researcher: str
) -> None:
    job = manifest("hers")
    job["metadata"]["annotations"] = {"ipuhub.io/created-by": "somebody-else"}
    assert apply(demo, job, "--as", researcher, "-n", NAMESPACE) == ""
    metadata = demo.job("hers", NAMESPACE)["metadata"]
    assert metadata["annotations"]["ipuhub.io/created-by"] == researcher
    assert metadata["finalizers"] == ["ipu.graphcore.ai/finalizer"]
    renamed = ("annotate", "--overwrite", "ipujob", "hers", "ipuhub.io/created-by=root")
    demo.kubectl(*renamed, "-n", NAMESPACE)
    metadata = demo.job("hers", NAMESPACE)["metadata"]
    assert metadata["annotations"]["ipuhub.io/created-by"] == researcher


def test_the_sample_jobs_are_made_by_their_teams_people(demo: RunningDemo) -> None:
    brisk = ("--jobs=3", "--pause=0.2", "--shortest=1", "--longest=2")
    demo.manage("run_demo_load", "--kubeconfig", str(demo.kubeconfig), *brisk)
    found = json.loads(demo.kubectl("get", "ipujobs", "-A", "-o", "json"))["items"]
    people = {team.namespace: team.users for team in TEAMS}
    assert found
    for job in found:
        author = job["metadata"]["annotations"]["ipuhub.io/created-by"]
        assert author in people[job["metadata"]["namespace"]]


def test_a_job_with_instances_scales_and_another_says_what_to_write(demo: RunningDemo) -> None:
    assert apply(demo, manifest("servers", "inference-1x.yaml")) == ""
    wait_until(lambda: demo.status("servers") == "Running", "Running")
    demo.kubectl("scale", "ipujob", "servers", "--replicas=3")
    wait_until(lambda: len(pods(demo)) == 3, "three instances")
    wait_until(lambda: demo.stats()["total"]["used"] == 6, "three partitions")
    demo.kubectl("scale", "ipujob", "servers", "--replicas=1")
    wait_until(lambda: demo.stats()["total"]["used"] == 2, "one partition")
    done = demo.try_kubectl("scale", "ipujob", "servers", "--replicas=0")
    assert "use 1 or more, or set suspend: true" in done.stderr

    assert apply(demo, manifest("alpha")) == ""
    done = demo.try_kubectl("scale", "ipujob", "alpha", "--replicas=2")
    assert done.returncode != 0
    assert "use ipusPerJobInstance" in done.stderr


def test_a_running_job_is_suspended_to_be_changed_and_goes_on(demo: RunningDemo) -> None:
    job = manifest("edited")
    assert apply(demo, job) == ""
    wait_until(lambda: demo.status("edited") == "Running", "Running")
    job["spec"]["workers"]["template"]["spec"]["containers"][0]["image"] = "resnet:newer"
    output = apply(demo, job)
    assert "spec.workers: cannot change while the job is Running: suspend the job first" in output

    suspend = ("patch", "ipujob", "edited", "--type=merge", "-p")
    demo.kubectl(*suspend, '{"spec":{"suspend":true}}')
    wait_until(lambda: demo.status("edited") == "Suspended", "Suspended")
    wait_until(lambda: demo.stats()["total"]["used"] == 0, "free IPUs")
    wait_until(lambda: pods(demo) == [], "no pods")
    job["spec"]["suspend"] = True
    assert apply(demo, job) == ""
    demo.kubectl(*suspend, '{"spec":{"suspend":false}}')
    wait_until(lambda: demo.status("edited") == "Running", "Running again")
    assert demo.stats()["total"]["used"] == 4
    images = "-o=jsonpath={.items[*].spec.containers[*].image}"
    assert set(demo.kubectl("get", "pods", images).split()) == {"resnet:newer"}


def test_a_failing_job_runs_again_after_a_pause_and_then_fails(demo: RunningDemo) -> None:
    job = manifest("unlucky", restartPolicy={"type": "OnFailure", "backOffLimit": 1})
    job["metadata"]["annotations"] = {"sim/runtime-seconds": "1", "sim/exit-code": "3"}
    assert apply(demo, job) == ""
    wait_until(lambda: demo.status("unlucky") == "Restarting", "Restarting")
    waits = condition(demo, "unlucky", "Restarting")
    assert "3" in waits["message"]
    wait_until(lambda: demo.status("unlucky") == "Failed", "Failed")
    status = demo.job("unlucky")["status"]
    assert status["restartCount"] == 1
    failed = condition(demo, "unlucky", "Failed")
    assert "3" in failed["message"]
    assert status["lastMessage"] == failed["message"]
    times = [datetime.fromisoformat(one["lastTransitionTime"]) for one in (waits, failed)]
    assert (times[1] - times[0]).total_seconds() >= 10  # the pause before the second attempt
    wait_until(lambda: demo.stats()["total"]["used"] == 0, "free IPUs")


def test_a_finished_job_goes_after_its_time_to_live(demo: RunningDemo) -> None:
    job = manifest("brief", ttlSecondsAfterFinished=2)
    job["metadata"]["annotations"] = {"sim/runtime-seconds": "1"}
    assert apply(demo, job) == ""
    wait_until(lambda: demo.try_kubectl("get", "ipujob", "brief").returncode != 0, "its end")
    # It may be gone before anybody sees it Completed; its events stay.
    command = ("get", "events", "--field-selector=involvedObject.name=brief")
    assert "IPUJobSucceeded" in demo.kubectl(*command, "-o", "jsonpath={.items[*].reason}").split()
    assert pods(demo) == []


def test_killed_webhooks_come_back_and_jobs_are_accepted_again(demo: RunningDemo) -> None:
    first = demo.pid_of("run_webhooks")
    os.kill(first, signal.SIGKILL)
    job = manifest("patient")
    wait_until(lambda: apply(demo, job) == "", "accepted again")
    assert demo.job("patient")["metadata"]["annotations"]["ipuhub.io/created-by"]
    assert demo.pid_of("run_webhooks") != first
