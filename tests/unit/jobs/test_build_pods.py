"""Worker pods, and the common parts of all pods of a job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.processes.podfiles import expand
from jobs.builders.pods import PodPlace, build_worker, micro_ipus_of
from jobs.ipujob.privileges import Privileges, privilege_excesses
from tests.builders.ipujobs import ipujob, partition
from tests.builders.jobpods import PLACE, context_of, env_of, launcher_of, worker_of
from tests.builders.podcases import hardened

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
MAIN, SIDECAR = {"name": "main", "image": "a"}, {"name": "tensorboard", "image": "b"}


def test_workers_of_a_job_with_a_launcher_sleep_and_hear_sigterm() -> None:
    main = worker_of(ipujob())["spec"]["containers"][0]
    assert main["command"][:2] == ["sh", "-c"]
    assert main["command"][2].startswith('trap "exit 0" TERM; ')
    assert main["command"][2].endswith(" & wait")


def test_the_sleep_ends_with_success_once_its_file_says_so(tmp_path: Path) -> None:
    worker = worker_of(ipujob())
    (source,) = (v for v in worker["spec"]["volumes"] if v["name"] == "ipuhub-mpi")
    (item,) = source["projected"]["sources"][1]["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['ipuhub.io/end']"
    assert worker["metadata"]["annotations"]["ipuhub.io/end"] == ""
    # A kubelet expands commands first: `kill $$` was `kill $` in real containers.
    script = expand(worker["spec"]["containers"][0]["command"][2], {})
    script = script.replace("/etc/mpi", str(tmp_path))
    (tmp_path / item["path"]).touch()
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    try:
        (tmp_path / item["path"]).write_text("2026-03-01T12:00:00Z")
        assert process.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its sleeps


def test_only_who_sleeps_is_told_of_its_end() -> None:
    own = worker_of(ipujob().without_launcher())
    session = launcher_of(ipujob().interactive(60))
    pods = {"own": own, "session": session, "launcher": launcher_of(ipujob())}
    ended = {name for name, pod in pods.items() if "ipuhub.io/end" in str(pod["metadata"])}
    watching = {name for name, pod in pods.items() if "/etc/mpi/end" in str(pod["spec"])}
    assert ended == watching == {"session"}


def test_a_template_cannot_say_that_its_pods_were_told_to_end() -> None:
    job = ipujob().without_launcher()
    job.spec["workers"]["template"]["metadata"] = {"annotations": {"ipuhub.io/end": "now"}}
    assert "ipuhub.io/end" not in worker_of(job)["metadata"]["annotations"]


def test_the_sleep_ends_at_once_on_sigterm() -> None:
    command = worker_of(ipujob())["spec"]["containers"][0]["command"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.terminate()
        assert process.wait(60) in {0, -15}  # -15: before the shell had set its trap
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its sleep


def test_a_sleeping_worker_takes_no_arguments() -> None:
    job = ipujob().with_template(containers=[{"name": "main", "image": "a", "args": ["train"]}])
    assert "args" not in worker_of(job)["spec"]["containers"][0]


def test_workers_without_a_launcher_run_their_own_command() -> None:
    job = (
        ipujob()
        .without_launcher()
        .with_template(
            containers=[{"name": "main", "image": "a", "command": ["serve"], "args": ["-v"]}]
        )
    )
    main = worker_of(job)["spec"]["containers"][0]
    assert (main["command"], main["args"]) == (["serve"], ["-v"])


def test_the_pod_environment_names_the_partition_and_the_popdist_totals() -> None:
    environment = env_of(worker_of(ipujob(), vipu_timeout_seconds=7)["spec"]["containers"][0])
    assert environment == {
        "IPUOF_VIPU_API_HOST": "vipu",
        "IPUOF_VIPU_API_PORT": "8090",
        "IPUOF_VIPU_API_PARTITION_ID": "p-0",
        "IPUOF_VIPU_API_TIMEOUT": "7",
        "POPDIST_NUM_TOTAL_REPLICAS": "4",
        "POPDIST_NUM_IPUS_PER_REPLICA": "1",
    }


def test_every_container_of_a_worker_finds_the_partition() -> None:
    containers = [{"name": "main", "image": "a"}, {"name": "sidecar", "image": "b"}]
    spec = worker_of(ipujob().with_template(containers=containers))["spec"]
    found = [env_of(one)["IPUOF_VIPU_API_PARTITION_ID"] for one in spec["containers"]]
    assert found == ["p-0", "p-0"]


def test_the_current_shape_has_no_popdist_totals() -> None:
    environment = env_of(worker_of(ipujob().current_shape())["spec"]["containers"][0])
    assert not any(name.startswith("POPDIST") for name in environment)


def test_a_value_in_the_template_wins() -> None:
    job = ipujob().with_template(
        hostNetwork=False,
        dnsPolicy="Default",
        nodeSelector={"vipu-ctrl": "mine"},
        containers=[
            {
                "name": "main",
                "image": "a",
                "env": [{"name": "IPUOF_VIPU_API_TIMEOUT", "value": "1"}],
                "securityContext": {"capabilities": {"drop": ["IPC_LOCK"]}},
            }
        ],
    )
    spec = worker_of(job)["spec"]
    assert (spec.get("hostNetwork", False), spec["dnsPolicy"]) == (False, "Default")
    assert spec["nodeSelector"] == {"vipu-ctrl": "mine"}
    assert env_of(spec["containers"][0])["IPUOF_VIPU_API_TIMEOUT"] == "1"
    assert spec["containers"][0]["securityContext"] == {"capabilities": {"drop": ["IPC_LOCK"]}}


def test_pods_use_the_host_network_by_default_and_not_when_the_setting_is_off() -> None:
    on, off = worker_of(ipujob())["spec"], worker_of(ipujob(), host_network=False)["spec"]
    assert (on["hostNetwork"], on["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "hostNetwork" not in off
    assert "dnsPolicy" not in off


LOCK = {"add": ["IPC_LOCK"]}


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ({}, {"capabilities": LOCK}),
        ({"privileged": False}, {"privileged": False, "capabilities": LOCK}),
        ({"privileged": True}, {"privileged": True}),
        ({"capabilities": LOCK}, {"capabilities": LOCK}),
        ({"capabilities": {"add": ["ALL"]}}, {"capabilities": {"add": ["ALL"]}}),
        ({"capabilities": {"drop": ["IPC_LOCK"]}}, {"capabilities": {"drop": ["IPC_LOCK"]}}),
        (
            {"runAsUser": 5, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
            {"runAsUser": 5, "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "IPC_LOCK"]}},
        ),
    ],
)
def test_pods_get_ipc_lock_where_the_template_does_not_drop_or_have_it(
    written: dict[str, Any], want: dict[str, Any]
) -> None:
    job = ipujob().with_template(
        containers=[{"name": "main", "image": "a", "securityContext": written}]
    )
    assert worker_of(job)["spec"]["containers"][0]["securityContext"] == want


@pytest.mark.parametrize("host_network", [False, True])
def test_the_operator_adds_host_network_and_ipc_lock_and_no_other_privilege(
    host_network: bool,
) -> None:
    """A pod that the restricted standard takes: whatever it refuses then, the operator added."""
    hard = hardened("initContainers")
    job = ipujob().with_template(**hard)
    pod = worker_of(job, host_network=host_network)
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    found = list(privilege_excesses({"workers": {"template": template}}, Privileges("restricted")))
    added = {(one.field.removeprefix("spec.workers.template.spec."), one.value) for one in found}
    lock = ("containers[0].securityContext.capabilities.add[0]", "IPC_LOCK")
    assert added == {lock} | ({("hostNetwork", True)} if host_network else set())


def test_pods_go_to_the_nodes_of_the_partition_and_never_restart_themselves() -> None:
    job = ipujob().with_template(restartPolicy="Always", nodeSelector={"zone": "a"})
    spec = worker_of(job)["spec"]
    assert spec["nodeSelector"] == {"zone": "a", "vipu-ctrl": "vctl1"}
    assert spec["restartPolicy"] == "Never"


def test_a_scheduler_is_named_only_where_one_is_set_and_the_template_names_none() -> None:
    assert "schedulerName" not in worker_of(ipujob())["spec"]
    named = worker_of(ipujob(), scheduler_name="ipuhub-scheduler")["spec"]
    assert named["schedulerName"] == "ipuhub-scheduler"
    own = ipujob().with_template(schedulerName="mine")
    assert worker_of(own, scheduler_name="ipuhub-scheduler")["spec"]["schedulerName"] == "mine"
    # The scheduler may be unavailable or know nothing: the nodes of the IPUs are still the only
    # candidates.
    assert named["nodeSelector"] == {"vipu-ctrl": "vctl1"}


def test_annotations_of_the_job_reach_its_pods_but_not_kubectls_or_our_own() -> None:
    job = ipujob().annotated(
        **{
            "sim/exit-code": "3",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "container.apparmor.security.beta.kubernetes.io/main": "unconfined",
            "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
            "ipuhub.io/usage": "forged",
            "ipuhub.io/created-by": "ada",
        }
    )
    annotations = launcher_of(job)["metadata"]["annotations"]
    assert annotations["sim/exit-code"] == "3"
    assert annotations.pop(DEFAULT_CONTAINER) == "main"
    assert set(annotations) == {"sim/exit-code", "ipuhub.io/usage", "ipuhub.io/made-of"}
    assert annotations["ipuhub.io/usage"] != "forged"


def test_annotations_of_the_template_are_kept_and_win_over_the_jobs() -> None:
    job = ipujob().annotated(note="of the job", other="kept")
    job.spec["workers"]["template"]["metadata"] = {"annotations": {"note": "of the template"}}
    annotations = worker_of(job)["metadata"]["annotations"]
    assert (annotations["note"], annotations["other"]) == ("of the template", "kept")


def test_kubectl_chooses_the_first_of_several_containers() -> None:
    alone, beside = ipujob(), ipujob().with_template(containers=[MAIN, SIDECAR])
    prepared = ipujob().with_template(containers=[MAIN], initContainers=[SIDECAR])
    assert DEFAULT_CONTAINER not in worker_of(alone)["metadata"]["annotations"]
    for pod in (launcher_of(alone), worker_of(beside), launcher_of(beside), worker_of(prepared)):
        assert pod["metadata"]["annotations"][DEFAULT_CONTAINER] == "main"


def test_kubectl_chooses_the_container_that_the_user_named() -> None:
    job = ipujob().with_template(containers=[MAIN, SIDECAR])
    wanted = {"annotations": {DEFAULT_CONTAINER: "tensorboard"}}
    job.spec["workers"]["template"]["metadata"] = wanted
    assert worker_of(job)["metadata"]["annotations"][DEFAULT_CONTAINER] == "tensorboard"


def test_labels_of_a_pod() -> None:
    job = ipujob()
    job.spec["workers"]["template"]["metadata"] = {
        "labels": {"app": "mine", "graphcore.ai/role": "forged"}
    }
    labels = worker_of(job)["metadata"]["labels"]
    assert labels == {
        "app": "mine",
        "graphcore.ai/ipujob-name": "sample",
        "graphcore.ai/ipujob-uid": "uid-sample",
        "graphcore.ai/role": "worker",
        "graphcore.ai/instance": "0",
        "graphcore.ai/attempt": "0",
        "app.kubernetes.io/name": "ipujob",
        "app.kubernetes.io/instance": "sample",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "ipuhub",
    }


def test_the_usage_stamp_shares_the_ipus_exactly() -> None:
    job = ipujob().workers(3).annotated(**{"ipuhub.io/created-by": "alice"})
    context = context_of(job, group="physics")
    stamps = [
        json.loads(build_worker(context, PLACE, n)["metadata"]["annotations"]["ipuhub.io/usage"])
        for n in range(3)
    ]
    assert [s["ipus"] for s in stamps] == [1333334, 1333333, 1333333]
    assert stamps[0] | {"ipus": 0} == {
        "component": "ipujob",
        "component_name": "sample",
        "user": "alice",
        "group": "physics",
        "instance_type": "ipu-4",
        "partition": "p-0",
        "ipus": 0,
    }


def test_each_instance_shares_the_ipus_of_its_own_partition() -> None:
    job = ipujob().without_launcher().instances(2).workers(3)
    place = PodPlace(1, 0, partition(1))
    pods = [build_worker(context_of(job), place, number) for number in (3, 4, 5)]
    stamps = [json.loads(pod["metadata"]["annotations"]["ipuhub.io/usage"]) for pod in pods]
    assert [stamp["ipus"] for stamp in stamps] == [1333334, 1333333, 1333333]
    assert {stamp["partition"] for stamp in stamps} == {"p-1"}


def test_without_a_named_user_or_group_the_stamp_names_the_namespace_only() -> None:
    stamp = json.loads(launcher_of(ipujob())["metadata"]["annotations"]["ipuhub.io/usage"])
    assert (stamp["group"], stamp["ipus"]) == ("default", 0)
    assert "user" not in stamp


@pytest.mark.parametrize(("size", "workers"), [(4, 1), (4, 3), (64, 7), (1, 64)])
def test_shares_add_up(size: int, workers: int) -> None:
    shares = [micro_ipus_of(size, workers, n) for n in range(workers)]
    assert sum(shares) == size * 1_000_000
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)
