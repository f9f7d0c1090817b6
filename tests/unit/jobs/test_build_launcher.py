"""The launcher pod that the operator creates."""

from __future__ import annotations

from dataclasses import replace

from jobs.builders.launcher import build_launcher
from jobs.builders.pods import PodOptions, PodPlace, sleep_command
from tests.builders.ipujobs import ipujob, partition
from tests.builders.jobpods import PLACE, context_of, env_of, launcher_of


def test_the_launcher_keeps_what_it_needs_and_drops_what_would_count_twice() -> None:
    job = ipujob().with_template(
        volumes=[{"name": "data", "emptyDir": {}}],
        imagePullSecrets=[{"name": "pull"}],
        tolerations=[{"operator": "Exists"}],
        securityContext={"runAsUser": 1000},
        initContainers=[{"name": "prepare", "image": "a"}],
        ephemeralContainers=[{"name": "debug", "image": "a"}],
        resources={"limits": {"cpu": "8"}},
        serviceAccount="mine",
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
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                "restartPolicy": "Always",
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
        "resizePolicy",
        "restartPolicy",
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
    assert not {"serviceAccount", "ephemeralContainers", "resources"} & set(spec)
    assert spec["nodeSelector"] == {"vipu-ctrl": "vctl1"}


def test_pull_secrets_of_our_image_are_added_to_those_of_the_template() -> None:
    for given, want in (
        ({}, ["ours", "pull"]),
        ({"imagePullSecrets": [{"name": "pull"}]}, ["pull", "ours"]),
    ):
        context = context_of(ipujob().with_template(**given))
        options = PodOptions(launcher_pull_secrets=("ours", "pull"))
        spec = build_launcher(replace(context, options=options), PLACE)["spec"]
        assert [secret["name"] for secret in spec["imagePullSecrets"]] == want
    spec = build_launcher(context_of(ipujob()), PLACE)["spec"]
    assert "imagePullSecrets" not in spec


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
    assert environment["IPUHUB_JOB_UID"] == "uid-sample"
    assert "IPUHUB_LAUNCHER_WAIT_SECONDS" not in environment
    later = build_launcher(
        context_of(ipujob().instances(2), launcher_wait_seconds=90.0), PodPlace(1, 2, partition())
    )
    environment = env_of(later["spec"]["initContainers"][0])
    assert (environment["IPUHUB_INSTANCE"], environment["IPUHUB_ATTEMPT"]) == ("1", "2")
    assert environment["IPUHUB_WORKERS"] == "2"
    assert environment["IPUHUB_LAUNCHER_WAIT_SECONDS"] == "90"


def test_the_init_container_asks_for_little_and_may_do_nothing_special() -> None:
    (init,) = launcher_of(ipujob())["spec"]["initContainers"]
    assert init["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert init["resources"]["requests"] == init["resources"]["limits"]
    assert init["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_the_launcher_of_an_interactive_job_sleeps_until_the_operator_ends_it() -> None:
    (main,) = launcher_of(ipujob().interactive(3600))["spec"]["containers"]
    assert main["command"] == sleep_command()


def test_a_launcher_with_a_long_name_gets_a_hostname_that_mpirun_survives() -> None:
    assert "hostname" not in launcher_of(ipujob("j" * 40))["spec"]
    assert launcher_of(ipujob("j" * 41))["spec"]["hostname"] == "ipujob-launcher"
    chosen = launcher_of(ipujob("j" * 41).with_template(hostname="mine"))
    assert chosen["spec"]["hostname"] == "mine"


def test_the_sites_networks_are_for_commands_that_name_none() -> None:
    chosen = replace(context_of(ipujob()), options=PodOptions(mpi_interfaces="ib0,10.1.0.0/16"))
    main = build_launcher(chosen, PLACE)["spec"]["containers"][0]
    networks = {name: value for name, value in env_of(main).items() if name.endswith("_include")}
    assert networks == {
        "OMPI_MCA_btl_tcp_if_include": "ib0,10.1.0.0/16",
        "OMPI_MCA_oob_tcp_if_include": "ib0,10.1.0.0/16",
    }
    bare = build_launcher(context_of(ipujob()), PLACE)["spec"]["containers"][0]
    assert not any(name.endswith("_include") for name in env_of(bare))
