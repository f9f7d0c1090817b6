"""Every right that the chart grants, as a file to review. Needs helm, no cluster.

After a wanted change: `IPUHUB_GOLDEN=write` and this test write the file again.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.chart.rendering import ROOT, VIPU, named, render

GOLDEN = ROOT / "tests/golden/chart-rights.yaml"
EVERYTHING = (
    VIPU,
    "vipuServer.agents.enabled=true",
    "database.enabled=true",
    "uninstall.drain=true",
    "vipuProxy.accessSecret=vipu-access",
    "ipuVisibility.enabled=true",
    "vipuProxy.replicas=2",
    "extendedScheduler.enabled=true",
    "extendedScheduler.deploy=true",
)


def granted() -> dict[str, Any]:
    """The rules of each role, and which account is bound to which."""
    documents = render(*EVERYTHING)
    found: dict[str, Any] = {}
    for each in documents:
        kind, name = each["kind"], each["metadata"]["name"]
        if kind in {"Role", "ClusterRole"}:
            found[f"{kind} {name}"] = each["rules"]
        elif kind in {"RoleBinding", "ClusterRoleBinding"}:
            (subject,) = each["subjects"]
            found[f"{kind} {name}"] = f"{each['roleRef']['name']} -> {subject['name']}"
    return found


def test_the_rights_are_those_that_were_reviewed() -> None:
    text = yaml.safe_dump(granted(), sort_keys=True, width=100)
    if os.environ.get("IPUHUB_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_long_names_give_each_component_its_own_rights() -> None:
    """Two documents of one name are one object to the API server: the last of them."""
    release, namespace = "graphcore-ipu-operators-of-the-whole-production-cluster", "n" * 63
    documents = render(*EVERYTHING, release=release[:53], namespace=namespace)
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in documents
    ]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    # A Service's name is a label of DNS, and a pod's label has its Deployment's.
    assert max(len(name) for kind, _, name in names if not kind.startswith("Cluster")) <= 63


def test_roles_that_others_grant_are_made_nowhere() -> None:
    documents = render(*EVERYTHING, "controller.rbac.create=false")
    assert [each for each in documents if "Role" in each["kind"]] == []
    # The hooks run all the same, as accounts to which they are granted.
    assert {"gc-ipu-operator-uninstall", "gc-ipu-operator-hide-ipus"} <= set(
        named(documents, "Job")
    )


def test_without_logs_the_dashboard_may_read_no_pod() -> None:
    off = "web.logs.enabled=false"
    documents = render(*EVERYTHING, off)
    assert [one for one in documents if one["metadata"]["name"].endswith("-web-logs")] == []
    web = named(documents, "Deployment")["gc-ipu-operator-web"]
    (container,) = web["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert given["IPUHUB_JOB_LOGS"] == "off"


def test_the_operator_creates_secrets_only_where_jobs_get_keys_and_never_reads_one() -> None:
    def on_secrets(*values: str) -> dict[str, Any]:
        return {
            one["metadata"]["name"]: rule["verbs"]
            for one in render(*values)
            if one["kind"] in {"Role", "ClusterRole"}
            for rule in one["rules"]
            if "secrets" in rule.get("resources", ()) and not rule.get("resourceNames")
        }

    assert on_secrets(*EVERYTHING) == {"ipus-gc-ipu-operator-controller-keys": ["create"]}
    assert on_secrets(VIPU) == {}


ACTING = (*EVERYTHING, "web.actions.enabled=true", "web.actions.users.admin=ops@lab")


def acting(*values: str) -> list[Any]:
    """The rules by which the dashboard acts as its users."""
    documents = render(*ACTING, *values)
    roles = [one for one in documents if one["metadata"]["name"].endswith("-web-actions")]
    assert sorted(one["kind"] for one in roles) == ["ClusterRole", "ClusterRoleBinding"]
    return [rule for one in roles for rule in one.get("rules", ())]


def test_the_dashboard_acts_as_the_named_users_and_as_nobody_by_default() -> None:
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    assert acting() == [rule | {"resourceNames": ["ops@lab"]}]
    assert acting("web.actions.singleSignOn=lab:{subject}") == [rule]
    web = named(render(*EVERYTHING), "Deployment")["gc-ipu-operator-web"]
    (container,) = web["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert given["IPUHUB_ACTIONS"] == "off"


def test_the_dashboard_acts_in_the_named_groups_only() -> None:
    named = {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"]}
    named["resourceNames"] = ["oidc:ml", "oidc:vision"]
    more = "web.actions.groups={oidc:vision,oidc:ml,oidc:ml}"
    assert [rule for rule in acting(more) if rule["resources"] == ["groups"]] == [named]
    everyone = acting(more, "web.actions.singleSignOn=lab:{subject}")
    assert [rule for rule in everyone if rule["resources"] == ["groups"]] == [named]


@pytest.mark.parametrize("value", ["groups={oidc:ml,system:masters}", "users.admin=system:admin"])
def test_the_dashboard_never_acts_as_a_component_of_kubernetes(value: str) -> None:
    with pytest.raises(AssertionError, match="begin with system:"):
        render(*ACTING, f"web.actions.{value}")


def test_one_proxy_alone_may_not_touch_pods() -> None:
    alone = render(*EVERYTHING, "vipuProxy.replicas=1")
    roles = [each for each in alone if each["metadata"]["name"].endswith("vipu-proxy-leader")]
    assert roles == []


def test_no_right_is_a_wildcard_or_grants_more_than_it_has() -> None:
    rules = [rule for each in granted().values() if isinstance(each, list) for rule in each]
    words = [word for rule in rules for values in rule.values() for word in values]
    assert len(rules) > 20
    assert {"*", "escalate", "impersonate"} & set(words) == set()
    # Secrets are read and written by name only; what is only created cannot be read.
    secrets = [rule for rule in rules if "secrets" in rule.get("resources", ())]
    assert secrets
    assert all(rule.get("resourceNames") or rule["verbs"] == ["create"] for rule in secrets)
