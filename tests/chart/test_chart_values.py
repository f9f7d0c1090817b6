"""Rendered output for chart values. Needs helm, no cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.demo.cluster import ACCESS_FILE
from tests.chart.rendering import (
    CHART,
    LAUNCHER,
    VIPU,
    container,
    environment,
    named,
    notes,
    render,
    template,
)

OIDC = (
    VIPU,
    "database.enabled=true",
    "web.oidc.issuer=https://login.example/lab",
    "web.oidc.clientId=ipuhub",
)


def test_the_proxys_access_to_v_ipu_comes_from_a_secret() -> None:
    plain = named(render(VIPU), "Deployment")["gc-ipu-operator-vipu-proxy"]
    assert "IPUHUB_VIPU_ACCESS_PATH" not in environment(plain)
    documents = render(VIPU, "vipuProxy.accessSecret=vipu-access")
    proxy = named(documents, "Deployment")["gc-ipu-operator-vipu-proxy"]
    folder = environment(proxy)["IPUHUB_VIPU_ACCESS_PATH"]
    (mount,) = (one for one in container(proxy)["volumeMounts"] if one["name"] == "vipu-access")
    assert (mount["mountPath"], mount["readOnly"]) == (f"{folder}/default", True)
    volumes = proxy["spec"]["template"]["spec"]["volumes"]
    assert {
        "name": "vipu-access",
        "secret": {"secretName": "vipu-access", "defaultMode": 0o440},
    } in (volumes)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (("image.tag=sha256:0a",), "localhost/ipuhub@sha256:0a"),
        (("image.repository=r:5000/ipuhub@sha256:0a",), "r:5000/ipuhub@sha256:0a"),
        (("image.repository=r:5000/ipuhub", "image.tag=v1"), "r:5000/ipuhub:v1"),
    ],
)
def test_images_may_be_pinned_by_their_digests(values: tuple[str, ...], want: str) -> None:
    deployments = named(render(VIPU, LAUNCHER, *values), "Deployment").values()
    assert {container(each)["image"] for each in deployments} == {want}
    (operator,) = (each for each in deployments if "LAUNCHER" in str(each))
    assert environment(operator)["IPUHUB_LAUNCHER_IMAGE"] == LAUNCHER.partition("=")[2]


def test_helm_lint_has_nothing_to_say() -> None:
    helm = str(Path(os.environ["CLUSTER_BIN"]) / "helm")
    command = [helm, "lint", "--strict", str(CHART), "-f", str(CHART / "trial-values.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


def _rules(documents: list[dict[str, Any]], accounts: dict[str, str]) -> set[str]:
    """Each account's rights as lines, Lease and object names as they are in the demo."""
    roles = {
        (each["kind"], each["metadata"]["name"]): each
        for each in documents
        if each["kind"] in {"Role", "ClusterRole"}
    }
    lines = set()
    for binding in documents:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            who = accounts.get(subject["name"])
            for rule in role["rules"] if who else ():
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", ["*"]):
                                plain = name.removeprefix("gc-ipu-operator-")
                                own = (
                                    resource == "serviceaccounts/token" and name == subject["name"]
                                )
                                owned = who if own else plain
                                lines.add(f"{role['kind']} {who} {verb} {group}/{resource} {owned}")
    return lines


def test_the_rights_are_those_under_which_the_demo_and_the_tests_run() -> None:
    """And what the webhooks need for their own certificate."""
    of_demo = _rules(
        list(yaml.safe_load_all(ACCESS_FILE.read_text("utf-8"))),
        {
            f"ipuhub-{each}": each
            for each in ("operator", "proxy", "web", "prober", "monitor", "webhooks")
        },
    )
    documents = render(VIPU, "database.enabled=true")
    of_chart = _rules(
        documents,
        {
            "gc-ipu-operator-controller": "operator",
            "gc-ipu-operator-vipu-proxy": "proxy",
            "gc-ipu-operator-web": "web",
            "gc-ipu-operator-prober": "prober",
            "gc-ipu-operator-monitor": "monitor",
            "gc-ipu-operator-webhook": "webhooks",
        },
    )
    assert of_demo - of_chart == set()
    assert {line for line in of_chart - of_demo if " webhooks " not in line} == set()
    assert not any(" * " in line or "/* " in line for line in of_chart)


def test_every_container_fits_the_restricted_standard() -> None:
    agents = ("vipuServer.agents.enabled=true", "vipuServer.machines=1")
    documents = render(VIPU, *agents, "database.enabled=true", "controller.replicas=2")
    seen = 0
    for each in documents:
        if each["kind"] not in {"Deployment", "StatefulSet", "Job"}:
            continue
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, each["metadata"]["name"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in pod["containers"]:
            seen += 1
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
    assert seen == 12


def test_webhooks_ask_about_the_namespaces_of_the_scope_and_exempt_the_operator() -> None:
    documents = render(VIPU, "admissionWebhooks.scope=team-a\\, team-b")
    configuration = named(documents, "ValidatingWebhookConfiguration")["gc-ipu-operator"]
    for webhook in configuration["webhooks"]:
        chosen = webhook["namespaceSelector"]["matchExpressions"][-1]
        assert (chosen["operator"], chosen["values"]) == ("In", ["team-a", "team-b"])
        assert "caBundle" not in webhook["clientConfig"]
        conditions = {each["name"]: each["expression"] for each in webhook["matchConditions"]}
        assert conditions["not-the-operator"].endswith(
            "!= 'system:serviceaccount:ipus:gc-ipu-operator-controller'"
        )
        assert "deletionTimestamp" in conditions["not-being-deleted"]


def test_two_releases_share_a_cluster_by_namespaces() -> None:
    documents = render(VIPU, "controller.namespaces={team-a,team-b}")
    operator = named(documents, "Deployment")["gc-ipu-operator-controller-manager"]
    assert environment(operator)["IPUHUB_JOB_NAMESPACES"] == "team-a,team-b"
    configuration = named(documents, "MutatingWebhookConfiguration")["gc-ipu-operator"]
    chosen = configuration["webhooks"][0]["namespaceSelector"]["matchExpressions"][-1]
    assert (chosen["operator"], chosen["values"]) == ("In", ["team-a", "team-b"])
    own = {(each["kind"], each["metadata"]["name"]) for each in documents}
    others = render(VIPU, "crds.enabled=false", release="other", namespace="elsewhere")
    assert own & {(each["kind"], each["metadata"]["name"]) for each in others} == set()


def test_partition_requests_are_open_to_components_only() -> None:
    policy = named(render(VIPU), "NetworkPolicy")["gc-ipu-operator-vipu-proxy"]
    by_port = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert by_port[8080] is None
    asking = {
        each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in by_port[8090]
    }
    assert asking == {"controller-manager", "prober", "web"}


def test_single_sign_on_reaches_the_dashboard_with_its_secret_as_a_file() -> None:
    values = ("database.enabled=true", "web.oidc.issuer=https://login.example/lab", VIPU)
    refused = template(*values)
    assert refused.returncode != 0
    assert "web.oidc.issuer needs web.oidc.clientId" in refused.stderr
    given = (
        "web.oidc.adminGroups={ipu-admins,ops}",
        "web.oidc.existingSecret=login",
        "web.oidc.scopes={openid,groups}",
        r"web.oidc.groupRoles={cn=ml\,dc=lab=viewer,ops=operator}",
    )
    documents = render(*values, "web.oidc.clientId=ipuhub", *given)
    web = named(documents, "Deployment")["gc-ipu-operator-web"]
    found = environment(web)
    assert found["IPUHUB_OIDC_ISSUER"] == "https://login.example/lab"
    assert found["IPUHUB_OIDC_CLIENT_ID"] == "ipuhub"
    assert found["IPUHUB_OIDC_ADMIN_GROUPS"] == "ipu-admins,ops"
    assert found["IPUHUB_OIDC_GROUP_ROLES"] == '["cn=ml,dc=lab=viewer","ops=operator"]'
    assert found["IPUHUB_OIDC_SCOPES"] == "openid,groups"
    assert found["IPUHUB_OIDC_CLIENT_SECRET_FILE"] == "/run/ipuhub/oidc/client-secret"
    assert found["IPUHUB_ALLOWED_HOSTS"]
    volumes = {each["name"]: each for each in web["spec"]["template"]["spec"]["volumes"]}
    assert volumes["oidc"]["secret"]["secretName"] == "login"
    without = named(render("database.enabled=true", VIPU), "Deployment")["gc-ipu-operator-web"]
    assert not [name for name in environment(without) if name.startswith("IPUHUB_OIDC")]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("web.oidc.caConfigMap=corporate", {"configMap": {"name": "corporate"}}),
        (
            "web.oidc.caSecret=corporate",
            {"secret": {"secretName": "corporate", "defaultMode": 288}},
        ),
    ],
)
def test_the_dashboard_verifies_the_provider_by_one_key_of_a_given_object(
    given: str, want: dict[str, dict[str, Any]]
) -> None:
    values = (*OIDC, given, "web.oidc.caKey=bundle.pem")
    web = named(render(*values), "Deployment")["gc-ipu-operator-web"]
    path = environment(web)["IPUHUB_OIDC_CA_PATH"]
    (mount,) = [each for each in container(web)["volumeMounts"] if each["name"] == "oidc-ca"]
    assert mount == {"name": "oidc-ca", "mountPath": path.rpartition("/")[0], "readOnly": True}
    (volume,) = [
        each for each in web["spec"]["template"]["spec"]["volumes"] if each["name"] == "oidc-ca"
    ]
    ((kind, source),) = want.items()
    items = [{"key": "bundle.pem", "path": path.rpartition("/")[2]}]
    assert volume == {"name": "oidc-ca", kind: source | {"items": items}}
    refused = template(*values, "web.oidc.caConfigMap=a", "web.oidc.caSecret=b")
    assert "web.oidc.caConfigMap and web.oidc.caSecret exclude each other" in refused.stderr
    without = named(render(*OIDC), "Deployment")["gc-ipu-operator-web"]
    assert "IPUHUB_OIDC_CA_PATH" not in environment(without)


def test_the_service_of_several_proxies_selects_the_leader_and_all_may_be_ready() -> None:
    label = {"ipuhub.io/leader": "true"}
    for replicas, want_selected, want_strategy in ((1, False, "Recreate"), (2, True, None)):
        documents = render(VIPU, f"vipuProxy.replicas={replicas}")
        deployment = named(documents, "Deployment")["gc-ipu-operator-vipu-proxy"]
        service = named(documents, "Service")["gc-ipu-operator-vipu-proxy"]
        assert (label.items() <= service["spec"]["selector"].items()) is want_selected
        assert deployment["spec"]["strategy"].get("type") == want_strategy
        fields = {each["name"]: each.get("valueFrom") for each in container(deployment)["env"]}
        pod = {"fieldRef": {"fieldPath": "metadata.name"}}
        assert fields.get("IPUHUB_POD_NAME") == (pod if want_selected else None)


def test_replicas_are_spread_without_counting_the_pods_that_an_upgrade_ends() -> None:
    """Else both new pods may come to the same node."""
    proxy = named(render(VIPU, "vipuProxy.replicas=2"), "Deployment")["gc-ipu-operator-vipu-proxy"]
    (spread,) = proxy["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["matchLabelKeys"] == ["pod-template-hash"]


def test_dashboard_and_worker_have_the_same_settings_of_notifications() -> None:
    documents = render(
        VIPU,
        "database.enabled=true",
        "notifications.networks={10.20.0.0/16}",
        "mail.host=smtp.example",
        "mail.from=ipuhub@lab.example",
        "mail.existingSecret=smtp",
    )
    deployments = named(documents, "Deployment")
    web, worker = (
        next(each for name, each in deployments.items() if name.endswith(end))
        for end in ("-web", "-worker")
    )
    names = ("IPUHUB_NOTIFY_NETWORKS", "IPUHUB_MAIL_HOST", "IPUHUB_MAIL_FROM", "IPUHUB_MAIL_PORT")
    want = ["10.20.0.0/16", "smtp.example", "ipuhub@lab.example", "587"]
    for each in (web, worker):
        assert [environment(each)[name] for name in names] == want
        assert "smtp" in yaml.safe_dump(each)
        assert "IPUHUB_MAIL_PASSWORD_FILE" in environment(each)  # the dashboard stands in
    policies = named(documents, "NetworkPolicy")
    for end in ("-web", "-worker"):
        policy = next(each for name, each in policies.items() if name.endswith(end))["spec"]
        ports = {each["port"] for rule in policy["egress"] for each in rule["ports"]}
        assert {443, 587, 5432} <= ports
    refused = template(VIPU, "database.enabled=true", "mail.host=smtp.example")
    assert "mail.host needs mail.from" in refused.stderr


def test_another_database_restarts_what_reads_its_address_and_nothing_else() -> None:
    def pods(database: str) -> dict[str, Any]:
        documents = render(VIPU, "web.existingSecret=web", database)
        return {
            name: each["spec"]["template"] for name, each in named(documents, "Deployment").items()
        }

    before, after = (pods(f"database.url=postgresql://{host}/ipuhub") for host in ("a", "b"))
    assert {name.rpartition("-")[2] for name, each in before.items() if after[name] != each} == {
        *("web", "prober", "monitor", "worker", "beat")
    }
    assert before == pods("database.url=postgresql://a/ipuhub")


def test_notes_and_policy_agree_on_the_ports_of_controllers() -> None:
    assert "networkPolicies.egress.vipuPorts" in notes(VIPU)
    assert "vipuPorts" not in notes(VIPU, "networkPolicies.egress.enabled=false")


SCALED = {
    "controller": "controller-manager",
    "vipuProxy": "vipu-proxy",
    "admissionWebhooks": "webhook",
    "web": "web",
    "prober": "prober",
    "worker": "worker",
}


def test_no_replicas_are_no_pods() -> None:
    values = [f"{key}.replicas=0" for key in SCALED]
    deployments = named(render(VIPU, "database.enabled=true", *values), "Deployment")
    found = {
        key: deployments[f"gc-ipu-operator-{name}"]["spec"]["replicas"]
        for key, name in SCALED.items()
    }
    assert found == dict.fromkeys(SCALED, 0)
