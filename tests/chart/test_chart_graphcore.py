"""Graphcore's own command, parameters and defaults, as the chart takes them. Needs helm."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    ROOT,
    VIPU,
    container,
    environment,
    named,
    render,
    template,
    template_of,
)
from tests.chart.test_chart_matrix import VALUES

PAGE = ROOT / "docs/admin/migrate-from-graphcore.md"
ROWS = [
    row
    for row in yaml.safe_load((CHART / "parameters.yaml").read_text("utf-8"))
    if row.get("alias")
]
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
# As Graphcore's page lists them, with its defaults.
PUBLISHED = {
    "global.launcherImage": "launcher:latest",
    "global.imagePullSecrets": "[]",
    "nameOverride": "",
    "fullNameOverride": "",
    "controller.hostNetwork": "true",
    "controller.dnsPolicy": "ClusterFirstWithHostNet",
    "controller.image.repository": "",
    "controller.image.pullPolicy": "Always",
    "controller.image.tag": "",
    "controller.serviceAccount.create": "true",
    "controller.serviceAccount.annotations": "{}",
    "controllers.serviceAccount.name": "",
    "controller.rbac.create": "true",
    "vipuServerAddr": "example.com",
    "vipuServerPort": "8191",
    "vipuClusterName": "test",
    "proxyPort": "8080",
    "ipuVisibility.advertiseOnMaster": "false",
    "podAnnotations": "{}",
    "podSecurityPolicyContext": "{}",
    "securityContext": "{}",
    "service.type": "clusterIP",
    "service.port": "80",
    "resources": "{}",
    "nodeSelector": "{}",
    "tolerations": "{}",
    "affinity": "{}",
    "extendedScheduler.enabled": "false",
    "admissionWebhooks.scope": "",
    "admissionWebhooks.timeoutSeconds": "30",
    "admissionWebhooks.image.repository": "localhost:5000/gc-webhook",
    "admissionWebhooks.image.tag": "v0.2.0",
    "admissionWebhooks.image.pullPolicy": "IfNotPresent",
    "admissionWebhooks.failurePolicy": "Fail",
    "admissionWebhooks.port": "8443",
    "admissionWebhooks.service.annotations": "{}",
    "admissionWebhooks.service.servicePort": "443",
    "admissionWebhooks.service.type": "clusterIP",
    "admissionWebhooks.patch.enabled": "true",
    "admissionWebhooks.patch.image.repository": "docker.io/jettech/kube-webhook-certgen",
    "admissionWebhooks.patch.image.tag": "v1.3.0",
    "admissionWebhooks.patch.image.pullPolicy": "IfNotPresent",
    "admissionWebhooks.patch.priorityClassName": "",
    "admissionWebhooks.patch.podAnnotations": "{}",
    "admissionWebhooks.patch.nodeSelector": "{}",
    "admissionWebhooks.patch.tolerations": "[]",
    "admissionWebhooks.patch.runAsUser": "2000",
    "vipuControllers": "",
}
# Of its chart 1.2, whose names are partly others.
OF_1_2 = re.findall(
    r"\S+",
    """
nameOverride fullnameOverride global.imagePullSecrets global.vipuControllers global.launcherImage
global.launcherImageTag global.launcherImagePullPolicy global.kubectlVersion controller.develLogs
controller.image.repository controller.image.pullPolicy controller.serviceAccount.create
controller.serviceAccount.annotations controller.serviceAccount.name controller.rbac.create
controller.service.type controller.service.port controller.resources controller.podAnnotations
controller.podSecurityContext controller.securityContext controller.nodeSelector
controller.tolerations controller.affinity vipuProxy.image.repository vipuProxy.image.pullPolicy
vipuProxy.proxyPartitionTrackerConfigMap vipuProxy.proxyWriteTimeoutSeconds
vipuProxy.proxyReadTimeoutSeconds vipuProxy.proxyIdleTimeoutSeconds vipuProxy.proxyPort
vipuProxy.logLevel vipuProxy.serviceAccount.create vipuProxy.rbac.create vipuProxy.service.type
vipuProxy.service.port vipuProxy.resources vipuProxy.podAnnotations vipuProxy.podSecurityContext
vipuProxy.securityContext vipuProxy.nodeSelector vipuProxy.tolerations vipuProxy.affinity
admissionWebhooks.timeoutSeconds admissionWebhooks.failurePolicy admissionWebhooks.port
admissionWebhooks.service.servicePort admissionWebhooks.service.type
admissionWebhooks.service.annotations worker.hostNetwork controller.hostNetwork
controller.dnsPolicy
""",
)


def test_graphcores_own_command_installs_operator_proxy_and_webhooks() -> None:
    documents = render(
        "vipuServerAddr=pod001",
        "vipuServerPort=8091",
        "vipuCLusterName=c1",
        "controller.image.repository=example/controller",
        "vipuProxy.image.repository=example/proxy",
    )
    deployments = named(documents, "Deployment")
    assert set(deployments) == {
        "gc-ipu-operator-controller-manager",
        "gc-ipu-operator-vipu-proxy",
        "gc-ipu-operator-webhook",
    }
    operator = deployments["gc-ipu-operator-controller-manager"]
    proxy = deployments["gc-ipu-operator-vipu-proxy"]
    assert container(operator)["image"] == "example/controller:0.1.0"
    assert container(proxy)["image"] == "example/proxy:0.1.0"
    # Nothing is left that only a machine which built the images has.
    assert "localhost/" not in json.dumps(documents)
    assert environment(proxy)["IPUHUB_VIPU_CLUSTER_NAME"] == "c1"
    controllers = named(documents, "ConfigMap")["gc-ipu-operator-vipu-controllers"]["data"]
    assert controllers == {"controllers.yaml": "pod001:8091:kubernetes.io/os=linux"}
    service = named(documents, "Service")["gc-ipu-operator-vipu-proxy"]["spec"]
    assert (service["type"], service["ports"][0]["port"]) == ("ClusterIP", 80)
    assert named(documents, "ClusterRole")["gc-metrics-reader"]["metadata"]["labels"][
        "component"
    ] == ("metrics-reader")
    # The proxy makes it, so that no uninstall takes the partitions' trace away.
    assert "ipu-partitions-tracker" not in named(documents, "ConfigMap")


@pytest.mark.parametrize(
    ("image", "controllers", "launchers"),
    [
        ({}, "localhost/ipuhub:0.1.0", "localhost/ipuhub-launcher:0.1.0"),
        ({"controller.image.tag": "v2"}, "localhost/ipuhub:v2", "localhost/ipuhub-launcher:0.1.0"),
        ({"image.repository": "r/a"}, "r/a:0.1.0", "r/a-launcher:0.1.0"),
        (
            {"image.repository": "r/a", "controller.image.repository": "r/b"},
            "r/b:0.1.0",
            "r/a-launcher:0.1.0",
        ),
        (
            {"controller.image.repository": "r/b", "controller.image.tag": "v2"},
            "r/b:v2",
            "r/b-launcher:v2",
        ),
    ],
)
def test_the_image_of_the_operator_is_everybodys_where_it_is_the_only_one(
    image: dict[str, str], controllers: str, launchers: str
) -> None:
    values = [f"{name}={value}" for name, value in image.items()]
    deployments = named(render(VIPU, *values), "Deployment")
    operator = deployments["gc-ipu-operator-controller-manager"]
    assert container(operator)["image"] == controllers
    assert environment(operator)["IPUHUB_LAUNCHER_IMAGE"] == launchers
    webhook = container(deployments["gc-ipu-operator-webhook"])["image"]
    assert webhook == launchers.replace("-launcher", "")


def _values(given: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {"vipuServer": {"enabled": True}}
    for name, value in given.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


OTHERS: dict[str, Any] = {
    "fullNameOverride": "other",
    "vipuClusterName": "c1",
    "controller.serviceAccount.name": "mine",
    "global.launcherImagePullPolicy": "Never",
    "proxyPort": 9000,
    "service.type": "NodePort",
    "service.port": 81,
    "podAnnotations": {"example.com/one": "two"},
    "nodeSelector": {"disk": "ssd"},
}
# A second value of each, by its type or by its name.
DIFFERENT: dict[str, Any] = {
    "policy": "Always",
    "text": "different",
    "vipuControllers": "pod002:8090:disk=ssd",
    "port": 9001,
    "serviceType": "LoadBalancer",
    "map": {"example.com/one": "three"},
    "podSecurityContext": {"runAsUser": 1001},
    "securityContext": {"runAsUser": 1001},
    "resources": {"requests": {"cpu": "30m"}},
    "tolerations": [{"key": "other", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}
each_spelling = pytest.mark.parametrize(
    ("old", "row"),
    [(old, row) for row in ROWS for old in row["alias"]],
    ids=[old for row in ROWS for old in row["alias"]],
)


@each_spelling
def test_both_spellings_of_a_parameter_render_the_same(old: str, row: dict[str, Any]) -> None:
    new = row["name"]
    value = OTHERS.get(new) or VALUES[new]
    of_old, of_new, neither = (
        template_of(_values({name: given}))
        for name, given in ((old, value), (new, value), ("crds.enabled", True))
    )
    assert of_new.returncode == of_old.returncode == 0, of_old.stderr + of_new.stderr
    assert of_old.stdout == of_new.stdout
    assert of_new.stdout != neither.stdout


@each_spelling
def test_two_spellings_with_two_values_stop_the_installation(old: str, row: dict[str, Any]) -> None:
    new = row["name"]
    different = DIFFERENT.get(new) or DIFFERENT[row["type"]]
    done = template_of(_values({old: OTHERS.get(new) or VALUES[new], new: different}))
    assert done.returncode != 0
    assert "name the same parameter and have different values: set one of them" in done.stderr
    assert new in done.stderr
    assert old in done.stderr


def test_every_published_parameter_is_there_with_its_default_or_says_it() -> None:
    """The chart's README has the star, the default, and Graphcore's default where ours differs."""
    line = re.compile(r"^\| `(?P<name>[^`]+)`(?P<star> \*)? \| `(?P<ours>.*?)` \| (?P<text>.*) \|$")
    starred, differ = {}, set()
    for each in (CHART / "README.md").read_text("utf-8").splitlines():
        found = line.match(each)
        if not found or not found["star"]:
            continue
        other = re.search(r"\(Graphcore: `(.*?)`\)", found["text"])
        default = other[1] if other else found["ours"].strip('"')
        (name, *_) = [found["name"], *re.findall(r"`(controllers\.[^`]+)`", found["text"])][::-1]
        starred[name] = default
        if other and other[1] != found["ours"].strip('"'):
            differ.add(found["name"])
    assert starred == PUBLISHED
    assert len(PUBLISHED) == 48
    page = PAGE.read_text("utf-8").partition("## What differs")[2]
    for name in differ:
        assert f"`{name}`" in page or f"`{name.rpartition('.')[0]}`" in page, name


def _is_known(name: str) -> bool:
    node: dict[str, Any] = SCHEMA
    for part in name.split("."):
        if part not in node.get("properties", {}):
            return False
        node = node["properties"][part]
    return True


def test_a_parameter_of_graphcores_later_chart_is_taken_or_the_page_says_what_to_use() -> None:
    table = PAGE.read_text("utf-8").partition("## Refused parameters")[2].partition("\n## ")[0]
    names = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    refused = {name for name in OF_1_2 if not _is_known(name)}
    assert {name for name in refused if {name, name.rpartition(".")[0]} & names} == refused
    assert not [name for name in names if _is_known(name)]


def test_the_host_network_of_jobs_is_one_value_for_operator_and_webhooks() -> None:
    for given, want in ((), "on"), (("worker.hostNetwork=false",), "off"):
        deployments = named(render(VIPU, *given), "Deployment")
        for name in ("controller-manager", "webhook"):
            found = environment(deployments[f"gc-ipu-operator-{name}"])
            assert found["IPUHUB_HOST_NETWORK"] == want


def test_the_launchers_tag_may_stand_apart() -> None:
    def image(*values: str) -> str:
        operator = named(render(VIPU, *values), "Deployment")["gc-ipu-operator-controller-manager"]
        return environment(operator)["IPUHUB_LAUNCHER_IMAGE"]

    tag = "global.launcherImageTag=v1"
    assert image(tag) == "localhost/ipuhub-launcher:v1"
    assert image(tag, "global.launcherImage=r:5000/a") == "r:5000/a:v1"
    refused = template(VIPU, tag, "global.launcherImage=r:5000/a:v2").stderr
    assert "global.launcherImage r:5000/a:v2 has a tag already" in refused
