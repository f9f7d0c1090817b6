"""What the operator creates."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobs.builders.access import build_role, build_role_binding, build_service_account
from jobs.builders.context import BuildContext, PodOptions, PodPlace, micro_ipus_of
from jobs.builders.launcher import build_launcher
from jobs.builders.mpi import build_config_map, hostfile, kubexec_script
from jobs.builders.worker import build_worker
from jobs.names import host_names, label_value
from jobs.spec import parse_spec
from tests.builders.ipujobs import ipujob, key_of, partition

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs"


def context_of(job: IPUJobBuilder, group: str = "", **options: Any) -> BuildContext:
    built = job.build()
    return BuildContext(
        key_of(built), built, parse_spec(built["spec"]), group, PodOptions(**options)
    )


PLACE = PodPlace(0, 0, partition())


def worker_of(job: IPUJobBuilder, number: int = 0, **options: Any) -> dict[str, Any]:
    return build_worker(context_of(job, **options), PLACE, number)


def launcher_of(job: IPUJobBuilder, **options: Any) -> dict[str, Any]:
    return build_launcher(context_of(job, **options), PLACE)


def env_of(container: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v["value"] for v in container["env"]}


@pytest.mark.parametrize(
    "kind", ["configmap", "role", "rolebinding", "serviceaccount", "worker", "launcher"]
)
def test_golden_manifests_of_the_sample(kind: str) -> None:
    sample = yaml.safe_load(Path("examples/single-gcd-sample.yaml").read_text(encoding="utf-8"))
    sample["metadata"] |= {"namespace": "default", "uid": "b5c92cb3"}
    context = BuildContext(key_of(sample), sample, parse_spec(sample["spec"]))
    built = {
        "configmap": lambda: build_config_map(context),
        "role": lambda: build_role(context),
        "rolebinding": lambda: build_role_binding(context),
        "serviceaccount": lambda: build_service_account(context),
        "worker": lambda: build_worker(context, PLACE, 0),
        "launcher": lambda: build_launcher(context, PLACE),
    }[kind]()
    want = yaml.safe_load((GOLDEN / f"{kind}.yaml").read_text(encoding="utf-8"))
    assert built == want


def test_workers_of_a_job_with_a_launcher_sleep_and_hear_sigterm() -> None:
    main = worker_of(ipujob())["spec"]["containers"][0]
    assert main["command"] == ["sh", "-c", 'trap "exit 0" TERM; sleep 365d & wait']


def test_the_sleep_ends_at_once_on_sigterm() -> None:
    command = worker_of(ipujob())["spec"]["containers"][0]["command"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.terminate()
        assert process.wait(5) in {0, -15}  # -15: before the shell had set its trap
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its sleep


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
                "securityContext": {"capabilities": {"drop": ["ALL"]}},
            }
        ],
    )
    spec = worker_of(job)["spec"]
    assert (spec.get("hostNetwork", False), spec["dnsPolicy"]) == (False, "Default")
    assert spec["nodeSelector"] == {"vipu-ctrl": "mine"}
    assert env_of(spec["containers"][0])["IPUOF_VIPU_API_TIMEOUT"] == "1"
    assert spec["containers"][0]["securityContext"] == {"capabilities": {"drop": ["ALL"]}}


def test_pods_use_the_host_network_by_default_and_not_when_the_setting_is_off() -> None:
    on, off = worker_of(ipujob())["spec"], worker_of(ipujob(), host_network=False)["spec"]
    assert (on["hostNetwork"], on["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "hostNetwork" not in off
    assert "dnsPolicy" not in off


def test_pods_get_ipc_lock_or_in_the_seed_profile_privilege() -> None:
    default = worker_of(ipujob())["spec"]["containers"][0]["securityContext"]
    seed = worker_of(ipujob(), profile="seed")["spec"]["containers"][0]["securityContext"]
    assert default == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert seed == {"privileged": True}


def test_pods_go_to_the_nodes_of_the_partition_and_never_restart_themselves() -> None:
    job = ipujob().with_template(restartPolicy="Always", nodeSelector={"zone": "a"})
    spec = worker_of(job)["spec"]
    assert spec["nodeSelector"] == {"zone": "a", "vipu-ctrl": "vctl1"}
    assert spec["restartPolicy"] == "Never"


def test_annotations_of_the_job_reach_its_pods_but_not_kubectls_or_our_own() -> None:
    job = ipujob().annotated(
        **{
            "sim/exit-code": "3",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "ipuhub.io/usage": "forged",
        }
    )
    annotations = launcher_of(job)["metadata"]["annotations"]
    assert annotations["sim/exit-code"] == "3"
    assert set(annotations) == {"sim/exit-code", "ipuhub.io/usage", "ipuhub.io/made-of"}
    assert annotations["ipuhub.io/usage"] != "forged"


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


def test_the_launcher_keeps_what_it_needs_and_drops_what_would_count_twice() -> None:
    job = ipujob().with_template(
        volumes=[{"name": "data", "emptyDir": {}}],
        imagePullSecrets=[{"name": "pull"}],
        tolerations=[{"operator": "Exists"}],
        securityContext={"runAsUser": 1000},
        initContainers=[{"name": "prepare", "image": "a"}],
        containers=[
            {
                "name": "main",
                "image": "a",
                "imagePullPolicy": "Always",
                "env": [{"name": "MODE", "value": "x"}],
                "args": ["dropped"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "securityContext": {"runAsGroup": 5, "capabilities": {}},
                "resources": {"requests": {"cpu": "1"}},
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"httpGet": {"port": 80}},
                "startupProbe": {"httpGet": {"port": 80}},
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
            },
            {"name": "sidecar", "image": "b"},
        ],
    )
    spec = launcher_of(job)["spec"]
    (main,) = spec["containers"]
    assert main["command"] == ["mpirun", "-np", "1", "true"]
    assert not {
        "args",
        "resources",
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    } & set(main)
    assert {"name": "data", "mountPath": "/data"} in main["volumeMounts"]
    assert (main["imagePullPolicy"], main["securityContext"]["runAsGroup"]) == ("Always", 5)
    assert env_of(main)["MODE"] == "x"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["securityContext"] == {"runAsUser": 1000}
    assert [c["name"] for c in spec["initContainers"]] == ["ipuhub-launcher"]
    assert spec["serviceAccountName"] == "sample-launcher"
    assert spec["nodeSelector"] == {"vipu-ctrl": "vctl1"}


def test_the_launcher_needs_no_secret_of_its_account_and_leaves_a_mount_of_the_template() -> None:
    at = "/var/run/secrets/kubernetes.io/serviceaccount"
    job = ipujob()
    main = job.spec["workers"]["template"]["spec"]["containers"][0]
    main["volumeMounts"] = [{"name": "mine", "mountPath": at}]
    spec = build_launcher(context_of(job), PLACE)["spec"]
    assert spec["automountServiceAccountToken"] is False
    mounted = {
        one["name"]: [m["name"] for m in one["volumeMounts"] if m["mountPath"] == at]
        for one in (*spec["initContainers"], *spec["containers"])
    }
    assert mounted == {"ipuhub-launcher": ["ipuhub-account"], main["name"]: ["mine"]}


def test_launcher_env_wins_over_the_templates() -> None:
    job = ipujob().with_template(
        containers=[{"name": "m", "image": "a", "env": [{"name": "MODE", "value": "worker"}]}]
    )
    job.spec["launcher"]["env"] = [{"name": "MODE", "value": "launcher"}]
    environment = env_of(launcher_of(job)["spec"]["containers"][0])
    assert environment["MODE"] == "launcher"
    assert environment["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert environment["OMPI_MCA_orte_keep_fqdn_hostnames"] == "1"


def test_the_init_container_knows_the_job_its_attempt_and_how_many_workers_there_are() -> None:
    (init,) = launcher_of(ipujob().workers(3), launcher_image="own:2")["spec"]["initContainers"]
    environment = env_of(init)
    assert init["image"] == "own:2"
    assert environment["IPUHUB_WORKERS"] == "3"
    assert environment["IPUHUB_NAMESPACE"] == "default"
    assert (environment["IPUHUB_JOB"], environment["IPUHUB_ATTEMPT"]) == ("sample", "0")


def test_the_launcher_of_an_interactive_job_sleeps_until_the_operator_ends_it() -> None:
    (main,) = launcher_of(ipujob().interactive(3600))["spec"]["containers"]
    assert main["command"][-1] == 'trap "exit 0" TERM; sleep 365d & wait'


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


def test_the_hostfile_lists_pod_names_and_slots() -> None:
    context = context_of(ipujob().workers(2).with_spec(modelReplicasPerWorker="3"))
    assert hostfile(context) == "sample-worker-0 slots=3\nsample-worker-1 slots=3\n"


def test_long_pod_names_become_short_hosts_that_the_script_maps_back(tmp_path: Path) -> None:
    name = "a.job-" + "x" * 57
    context = context_of(ipujob(name).workers(2))
    assert host_names(name, 2) == ("ipujob-worker-0", "ipujob-worker-1")
    assert run_script(context, "ipujob-worker-1", tmp_path)[3] == f"{name}-worker-1"


def test_pod_names_up_to_49_characters_are_hosts() -> None:
    assert host_names("j" * 40, 1) == ("j" * 40 + "-worker-0",)
    assert host_names("j" * 41, 1) == ("ipujob-worker-0",)


def test_a_launcher_with_a_long_name_gets_a_hostname_that_mpirun_survives() -> None:
    assert "hostname" not in launcher_of(ipujob("j" * 40))["spec"]
    assert launcher_of(ipujob("j" * 41))["spec"]["hostname"] == "ipujob-launcher"
    chosen = launcher_of(ipujob("j" * 41).with_template(hostname="mine"))
    assert chosen["spec"]["hostname"] == "mine"


def test_the_script_runs_the_command_in_the_workers_main_container(tmp_path: Path) -> None:
    arguments = run_script(context_of(ipujob("b.c")), "b.c-worker-0", tmp_path)
    assert arguments == [
        "exec",
        "--namespace",
        "default",
        "b.c-worker-0",
        "--container",
        "main",
        "--",
        "/bin/sh",
        "-c",
        "echo 'two words'",
    ]


def run_script(context: BuildContext, host: str, folder: Path) -> list[str]:
    """What kubectl would be called with."""
    kubectl = folder / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    kubectl.chmod(0o755)
    script = folder / "kubexec.sh"
    script.write_text(kubexec_script(context), encoding="utf-8")
    done = subprocess.run(
        ["/bin/sh", str(script), host, "echo 'two words'"],
        env={"IPUHUB_KUBECTL": str(kubectl)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_launcher_may_exec_into_this_jobs_workers_only() -> None:
    rules = build_role(context_of(ipujob().workers(2)))["rules"]
    (exec_rule,) = [r for r in rules if "pods/exec" in r["resources"]]
    assert exec_rule["resourceNames"] == ["sample-worker-0", "sample-worker-1"]
    assert exec_rule["verbs"] == ["create", "get"]


def test_everything_goes_with_the_job() -> None:
    context = context_of(ipujob())
    for built in (
        build_config_map(context),
        build_role(context),
        build_launcher(context, PLACE),
        build_worker(context, PLACE, 0),
    ):
        (owner,) = built["metadata"]["ownerReferences"]
        assert owner["uid"] == "uid-sample"
        assert owner["controller"] is True
        assert owner["blockOwnerDeletion"] is True


def test_a_long_name_is_cut_and_hashed_in_labels() -> None:
    assert label_value("a" * 63) == "a" * 63
    long, other = label_value("a" * 64), label_value("a" * 65)
    assert len(long) == 63
    assert long != other


def test_workers_are_numbered_over_all_instances() -> None:
    spec = parse_spec(ipujob().without_launcher().instances(3).workers(2).spec)
    assert [list(spec.workers_of(i)) for i in range(3)] == [[0, 1], [2, 3], [4, 5]]
