"""The chart with a scheduler that calls the proxy, and with IPUs on nodes. Needs helm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import VIPU, container, environment, named, notes, render, template

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/admin/scheduler.md"
OWN = "gc-ipu-operator-scheduler"
SCHEDULER = Path(os.environ["CLUSTER_BIN"]) / "kube-scheduler"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
users: [{name: nobody, user: {}}]
"""
NODES_WRITTEN = {"nodes", "nodes/status"}


def configuration(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(yaml.safe_load(named(documents, "ConfigMap")[OWN]["data"]["config.yaml"]))


def writers_of_nodes(documents: list[dict[str, Any]]) -> list[str]:
    return [
        role["metadata"]["name"]
        for kind in ("Role", "ClusterRole")
        for role in named(documents, kind).values()
        for rule in role["rules"]
        if NODES_WRITTEN & {*rule.get("resources", ())} and "patch" in rule["verbs"]
    ]


def test_by_default_nobody_asks_and_nothing_writes_to_nodes() -> None:
    documents = render(VIPU)
    assert not [each for each in documents if each["metadata"]["name"] == OWN]
    deployments = named(documents, "Deployment")
    operator = environment(deployments["gc-ipu-operator-controller-manager"])
    assert operator["IPUHUB_SCHEDULER_NAME"] == ""
    assert all("IPUHUB_IPU_VISIBILITY" not in environment(each) for each in deployments.values())
    assert writers_of_nodes(documents) == []


def test_a_second_scheduler_asks_the_proxy_and_takes_job_pods() -> None:
    values = ("extendedScheduler.enabled=true", "service.port=81")
    documents = render(VIPU, *values)
    config = configuration(documents)
    assert config["profiles"] == [{"schedulerName": "ipuhub-scheduler"}]
    assert (config["leaderElection"]["resourceName"]) == OWN
    assert config["leaderElection"]["resourceNamespace"] == "ipus"
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "http://gc-ipu-operator-vipu-proxy.ipus.svc:81/scheduler"
    assert extender["ignorable"] is True
    deployments = named(documents, "Deployment")
    operator = environment(deployments["gc-ipu-operator-controller-manager"])
    assert operator["IPUHUB_SCHEDULER_NAME"] == "ipuhub-scheduler"
    assert container(deployments[OWN])["image"].startswith("registry.k8s.io/kube-scheduler:v1.")
    roles = {
        each["roleRef"]["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for each in named(documents, kind).values()
        if each["subjects"][0]["name"] == OWN
    }
    assert roles == {"system:kube-scheduler", "system:volume-scheduler", OWN}
    (leases, create) = named(documents, "Role")[OWN]["rules"]
    assert (leases["resourceNames"], leases["verbs"]) == ([OWN], ["get", "update"])
    assert create["verbs"] == ["create"]


def test_for_the_clusters_own_scheduler_there_is_a_file_as_the_page_has_it() -> None:
    documents = render(VIPU, "extendedScheduler.enabled=true", "extendedScheduler.deploy=false")
    assert OWN not in named(documents, "Deployment")
    assert OWN not in named(documents, "ServiceAccount")
    operator = named(documents, "Deployment")["gc-ipu-operator-controller-manager"]
    assert environment(operator)["IPUHUB_SCHEDULER_NAME"] == ""
    config = configuration(documents)
    lines = PAGE.read_text("utf-8").split("apiVersion: kubescheduler", 1)[1].split("\n\n", 1)[0]
    page = yaml.safe_load("    apiVersion: kubescheduler" + lines)
    (extender,), (of_page,) = config.pop("extenders"), page.pop("extenders")
    assert extender.pop("urlPrefix") == "http://PROXY_ADDRESS:80/scheduler"
    assert of_page.pop("urlPrefix").endswith("/scheduler")
    assert (config, extender) == (page, of_page)


@pytest.mark.skipif(not SCHEDULER.exists(), reason="no kube-scheduler in CLUSTER_BIN")
def test_kube_scheduler_loads_the_file(tmp_path: Path) -> None:
    """It refuses a field that its API does not have."""
    documents = render(VIPU, "extendedScheduler.enabled=true", "extendedScheduler.deploy=false")
    config = configuration(documents)
    config["clientConnection"]["kubeconfig"] = str(tmp_path / "kubeconfig")
    (tmp_path / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")
    wrong = {**config, "extenders": [{**config["extenders"][0], "unknownField": True}]}
    (done, written), (refused, _) = (load(each, tmp_path) for each in (config, wrong))
    assert done.returncode == 0, done.stderr
    assert [config["extenders"], config["profiles"][0]["schedulerName"]] == [
        written["extenders"],
        written["profiles"][0]["schedulerName"],
    ]
    assert config["leaderElection"].items() <= written["leaderElection"].items()
    assert refused.returncode != 0
    assert "unknownField" in refused.stderr


def load(
    config: dict[str, Any], folder: Path
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """kube-scheduler with this configuration, and the configuration that it would run with."""
    given, written = folder / "given.yaml", folder / "written.yaml"
    given.write_text(yaml.safe_dump(config), encoding="utf-8")
    options = [f"--config={given}", f"--write-config-to={written}", "--secure-port=0"]
    done = subprocess.run(
        [SCHEDULER, *options], capture_output=True, text=True, timeout=60, check=False
    )
    return done, yaml.safe_load(written.read_text("utf-8"))


def test_the_notes_restart_the_clusters_scheduler_by_its_manifest() -> None:
    """Of a static pod the API server has a mirror only: deleting that restarts no container."""
    text = notes(VIPU, "extendedScheduler.enabled=true", "extendedScheduler.deploy=false")
    lines = " ".join(line.strip().removesuffix("\\") for line in text.splitlines())
    away, _, back = lines.partition(" && sleep ")
    manifest, aside = "/etc/kubernetes/manifests/kube-scheduler.yaml", "/etc/kubernetes/"
    assert away.endswith(f"mv {manifest} {aside}")
    assert f"mv {aside}kube-scheduler.yaml {aside}manifests/" in back
    assert "delete pod" not in text
    assert "delete pod" not in PAGE.read_text("utf-8")
    assert "manifests/" not in notes(VIPU, "extendedScheduler.enabled=true")


def test_two_schedulers_of_one_name_are_refused() -> None:
    values = ("extendedScheduler.enabled=true", "extendedScheduler.schedulerName=default-scheduler")
    assert "default-scheduler is the cluster's own" in template(VIPU, *values).stderr


@pytest.mark.parametrize("masters", ["true", "false"])
def test_visibility_gives_the_proxy_one_right_more_and_takes_the_numbers_along(
    masters: str,
) -> None:
    values = ("ipuVisibility.enabled=true", f"ipuVisibility.advertiseOnMaster={masters}")
    documents = render(VIPU, *values)
    rights = "ipus-gc-ipu-operator-ipu-visibility"
    hook = "ipus-gc-ipu-operator-hide-ipus"
    assert sorted(writers_of_nodes(documents)) == sorted([rights, hook, hook])
    (rule,) = named(documents, "ClusterRole")[rights]["rules"]
    assert rule == {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]}
    subject = named(documents, "ClusterRoleBinding")[rights]["subjects"][0]["name"]
    assert subject == "gc-ipu-operator-vipu-proxy"
    proxy = environment(named(documents, "Deployment")["gc-ipu-operator-vipu-proxy"])
    assert proxy["IPUHUB_IPU_VISIBILITY"] == "on"
    assert proxy["IPUHUB_IPU_VISIBILITY_ON_MASTER"] == ("on" if masters == "true" else "off")
    job = named(documents, "Job")["gc-ipu-operator-hide-ipus"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"
    assert environment(job) == {"IPUHUB_NAMESPACE": "ipus"}


def test_showing_ipus_replaces_no_pod_but_those_that_have_to_do_with_it() -> None:
    """A simulated V-IPU that is replaced forgets the partitions of running jobs."""
    values = (VIPU, "database.existingSecret=postgres")
    before, after = (
        named(render(*values, f"ipuVisibility.enabled={enabled}"), "Deployment")
        for enabled in ("false", "true")
    )
    changed = {
        name.removeprefix("gc-ipu-operator-") for name in after if before[name] != after[name]
    }
    assert changed == {"vipu-proxy", "prober"}


def test_an_upgrade_ends_the_old_proxy_before_the_new_one_has_to_lead() -> None:
    """Only the leader is ready: with a rolling update each waits for the other."""
    proxy = named(render(VIPU), "Deployment")["gc-ipu-operator-vipu-proxy"]
    assert proxy["spec"]["strategy"] == {"type": "Recreate"}


def test_every_pod_of_both_fits_the_restricted_standard() -> None:
    documents = render(VIPU, "extendedScheduler.enabled=true", "ipuVisibility.enabled=true")
    added = [named(documents, "Deployment")[OWN]]
    added.append(named(documents, "Job")["gc-ipu-operator-hide-ipus"])
    for each in added:
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(each)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
