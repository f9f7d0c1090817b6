"""Documented guarantees about every pod, and messages where the operator deviates from the
template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.builders.launcher import hostfile, overrides
from jobs.ipujob.spec import parse_spec
from jobs.operator.actions import PatchStatus
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, ipujob
from tests.builders.jobpods import context_of, launcher_of, worker_of
from tests.builders.plans import with_partition
from tests.fakes.jobworld import JobWorld

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder


def pods_of(job: IPUJobBuilder) -> list[dict[str, Any]]:
    """Worker 0 and the launcher."""
    return [worker_of(job), launcher_of(job)]


def main_of(pod: dict[str, Any]) -> dict[str, Any]:
    return dict(pod["spec"]["containers"][0])


def with_main(**fields: Any) -> IPUJobBuilder:
    return ipujob().with_template(containers=[{"name": "main", "image": "a"} | fields])


FROM_THE_USER = {
    "imagePullSecrets": [{"name": "pull"}],
    "tolerations": [{"operator": "Exists"}],
    "securityContext": {"runAsUser": 1000, "fsGroup": 5},
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "runtimeClassName": "special",
    "schedulerName": "other",
    "hostIPC": True,
    "shareProcessNamespace": True,
    "terminationGracePeriodSeconds": 7,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.1"]},
    "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["a"]}],
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "enableServiceLinks": False,
    "activeDeadlineSeconds": 60,
    "fieldOfTomorrow": {"kept": True},
}


@pytest.mark.parametrize("field", sorted(FROM_THE_USER))
def test_what_the_user_sets_is_kept_in_workers_and_launcher(field: str) -> None:
    for pod in pods_of(ipujob().with_template(**{field: FROM_THE_USER[field]})):
        assert pod["spec"][field] == FROM_THE_USER[field]


def test_volumes_are_at_the_same_paths_in_workers_and_launcher() -> None:
    job = with_main(volumeMounts=[{"name": "data", "mountPath": "/data", "subPath": "x"}])
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    for pod in pods_of(job.with_template(volumes=[claim])):
        assert claim in pod["spec"]["volumes"]
        mounts = main_of(pod)["volumeMounts"]
        assert {"name": "data", "mountPath": "/data", "subPath": "x"} in mounts


def test_env_from_and_working_directory_are_kept_in_both() -> None:
    source = [{"configMapRef": {"name": "settings"}}]
    for pod in pods_of(with_main(envFrom=source, workingDir="/work")):
        assert (main_of(pod)["envFrom"], main_of(pod)["workingDir"]) == (source, "/work")


def test_launcher_env_reaches_the_launcher_alone_with_its_sources() -> None:
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    job = ipujob()
    job.spec["launcher"]["env"] = [secret, {"name": "IPUOF_VIPU_API_TIMEOUT", "value": "9"}]
    worker, launcher = (main_of(pod)["env"] for pod in pods_of(job))
    assert secret in launcher
    assert secret not in worker
    found = [v["value"] for v in launcher if v["name"] == "IPUOF_VIPU_API_TIMEOUT"]
    assert found == ["9"]


def test_every_worker_container_tells_its_last_lines_and_so_does_the_launchers() -> None:
    job = ipujob().with_template(
        initContainers=[{"name": "prepare", "image": "a"}],
        containers=[
            {"name": "main", "image": "a"},
            {"name": "side", "image": "b", "terminationMessagePolicy": "File"},
        ],
    )
    worker, launcher = pods_of(job)
    wants = "FallbackToLogsOnError"
    policies = [
        c["terminationMessagePolicy"]
        for kind in ("initContainers", "containers")
        for c in worker["spec"][kind]
    ]
    assert policies == [wants, wants, "File"]  # what the user set stays
    assert {c["terminationMessagePolicy"] for c in launcher["spec"]["containers"]} == {wants}
    assert {c["terminationMessagePolicy"] for c in launcher["spec"]["initContainers"]} == {wants}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, "sample-worker-0 slots=2\nsample-worker-1 slots=2\n"),
        ({"modelReplicasPerWorker": 3}, "sample-worker-0 slots=3\nsample-worker-1 slots=3\n"),
    ],
)
def test_slots_are_model_replicas_per_worker_or_their_share(
    fields: dict[str, Any], want: str
) -> None:
    assert hostfile(context_of(ipujob().workers(2).with_spec(**fields))) == want


def test_slots_of_the_current_shape_are_one() -> None:
    assert hostfile(context_of(ipujob().current_shape())) == "sample-worker-0 slots=1\n"


def test_workers_per_job_instance_wins_over_the_replicas() -> None:
    spec = parse_spec(ipujob().workers(5).instances(2).with_spec(workersPerJobInstance=2).spec)
    assert (spec.workers_per_instance, spec.total_workers) == (2, 4)


# --- what is said ------------------------------------------------------------------------------


def said_of(job: IPUJobBuilder) -> str:
    return overrides(parse_spec(job.build()["spec"]))


def test_a_template_that_is_used_as_it_is_needs_no_words() -> None:
    assert said_of(ipujob()) == ""
    assert said_of(ipujob().without_launcher().with_template(restartPolicy="Never")) == ""


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (ipujob().with_template(restartPolicy="Always"), "restartPolicy Always is Never"),
        (
            with_main(command=["serve"], args=["-v"]),
            "workers sleep instead of running command and args of container main",
        ),
        (with_main(resources={"limits": {"cpu": 1}}), "the launcher goes without resources of con"),
        (
            with_main(ports=[{"containerPort": 80}], livenessProbe={"exec": {}}),
            "without ports, livenessProbe of container main",
        ),
        (with_main(lifecycle={"preStop": {}}), "without lifecycle of container main"),
        (
            ipujob().with_template(initContainers=[{"name": "prepare", "image": "a"}]),
            "without initContainers prepare",
        ),
        (
            ipujob().with_template(
                containers=[{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]
            ),
            "without containers side",
        ),
        (
            ipujob().with_template(serviceAccountName="mine"),
            "launcher's serviceAccountName is its own, not mine",
        ),
        (
            ipujob().with_template(automountServiceAccountToken=False),
            "the launcher gets its service account's token all the same",
        ),
    ],
)
def test_what_is_not_used_is_said(job: IPUJobBuilder, want: str) -> None:
    assert want in said_of(job)


def test_labels_and_stamps_of_the_operators_own_are_said_and_others_are_kept() -> None:
    job = ipujob().without_launcher()
    job.spec["workers"]["template"]["metadata"] = {
        "labels": {"graphcore.ai/role": "x", "app.kubernetes.io/version": "2"},
        "annotations": {"ipuhub.io/usage": "{}"},
    }
    assert "labels graphcore.ai/role, which" in said_of(job)
    assert "annotation ipuhub.io/usage" in said_of(job)
    worker = worker_of(job)
    assert worker["metadata"]["labels"]["app.kubernetes.io/version"] == "2"


def test_without_a_launcher_command_probes_and_resources_are_used() -> None:
    job = with_main(command=["serve"], resources={"limits": {"cpu": 1}}, livenessProbe={"exec": {}})
    assert said_of(job.without_launcher()) == ""


def test_it_is_an_event_of_the_first_status_of_a_generation() -> None:
    job = with_main(command=["serve"])
    planned = plan(with_partition(job), NOW)
    (patch,) = (a for a in planned.actions if isinstance(a, PatchStatus))
    assert [e.reason for e in patch.events].count("SpecOverridden") == 1
    known = plan(with_partition(job.with_status(observedGeneration=1)), NOW)
    events = [e.reason for a in known.actions if isinstance(a, PatchStatus) for e in a.events]
    assert "SpecOverridden" not in events


async def test_it_is_said_once_in_the_life_of_a_job() -> None:
    world = JobWorld()
    world.kube.add_job(with_main(command=["serve"]).build())
    await world.run(20)
    assert world.state() == "Completed"
    assert world.events.reasons.count("SpecOverridden") == 1


def test_the_launchers_own_environment_wins_over_the_templates() -> None:
    command = {"command": ["true"], "env": [{"name": "A", "value": "launcher"}]}
    job = with_main(env=[{"name": "A", "value": "template"}]).with_spec(launcher=command)
    _, launcher = pods_of(job)
    found = [v["value"] for v in main_of(launcher)["env"] if v["name"] == "A"]
    assert found == ["launcher"]
