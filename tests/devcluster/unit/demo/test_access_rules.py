"""Every right of every process, one line each, against a file that a reviewer reads.

After a wanted change: python -m tests.devcluster.unit.demo.test_access_rules >
tests/golden/access.txt
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from devcluster.demo.cluster import ACCESS_FILE, ACTIONS_FILE, KEYS_FILE, STAND_INS_FILE
from devcluster.demo.processes import ACCOUNTS, NAMESPACE
from jobs.builders.launcher import build_role
from jobs.builders.pods import BuildContext
from jobs.ipujob.spec import parse_spec
from tests.builders.ipujobs import ipujob, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "access.txt"
DEMO_ADMIN = "demo-admin"
NEVER = {"secrets", "*", "nodes/proxy", "pods/attach", "pods/portforward", "clusterroles"}


FILES = (ACCESS_FILE, ACTIONS_FILE, STAND_INS_FILE)


def manifests(files: Iterable[Path] = FILES) -> list[dict[str, Any]]:
    return [one for file in files for one in yaml.safe_load_all(file.read_text())]


def granted(*files: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Account, namespace (empty: all) and rule, by the bindings."""
    found = manifests(files or FILES)
    roles = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["rules"]
        for one in found
        if one["kind"] in {"Role", "ClusterRole"}
    }
    for one in found:
        if one["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        namespace = one["metadata"].get("namespace", "")
        reference = one["roleRef"]
        home = namespace if reference["kind"] == "Role" else ""
        for subject in one["subjects"]:
            if subject["kind"] == "User":
                assert subject["name"] == DEMO_ADMIN
                continue
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
            for rule in roles[reference["kind"], home, reference["name"]]:
                yield subject["name"], namespace, rule


def lines() -> list[str]:
    found = []
    for account, namespace, rule in granted():
        names = f" {','.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
        where = f"in {namespace}" if namespace else "everywhere"
        what = [
            f"{resource}.{group}" if group else resource
            for group in rule.get("apiGroups", ())
            for resource in rule.get("resources", ())
        ] + rule.get("nonResourceURLs", [])
        found += [f"{account}: {', '.join(rule['verbs'])} {one}{names} {where}" for one in what]
    return sorted(found)


def test_the_rights_are_those_that_somebody_looked_at() -> None:
    assert lines() == GOLDEN.read_text().splitlines()


def test_nobody_has_a_wildcard_secrets_or_another_ones_rights() -> None:
    for account, namespace, rule in granted():
        given = {*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]}
        assert not given & NEVER, account
        assert not given & {"escalate", "bind"}, account
        if "impersonate" in given:
            acts = (account, rule["resources"], rule["resourceNames"])
            assert acts == ("ipuhub-web", ["users"], [DEMO_ADMIN])
        if {"serviceaccounts/token"} & given:
            assert (rule["resourceNames"], namespace) == ([account], NAMESPACE)


def test_with_keys_for_pods_the_operator_stores_secrets_and_reads_none() -> None:
    ((account, namespace, rule),) = granted(KEYS_FILE)
    assert (account, namespace) == ("ipuhub-operator", "")
    assert rule == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}


def held_by(account: str) -> set[tuple[str, str]]:
    """Resource (with its subresource) and verb."""
    return {
        (resource, verb)
        for holder, _, rule in granted()
        if holder == account
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def test_the_operator_holds_what_it_grants_and_no_other_way_into_pods() -> None:
    job = ipujob().build()
    context = BuildContext(key_of(job), job, parse_spec(job["spec"]))
    rules = build_role(context)["rules"]
    granted_on = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    held = held_by("ipuhub-operator")
    assert granted_on <= held  # or the API server would not let it make the launcher's Role
    assert {one for one in held if one[0].startswith("pods/")} <= granted_on


def test_the_operator_may_do_with_partitions_what_its_client_asks_for() -> None:
    verbs = {verb for resource, verb in held_by("ipuhub-operator") if "partitions" in resource}
    assert verbs == {"list", "update", "delete"}


def test_each_process_has_an_account_of_its_own() -> None:
    made = {one["metadata"]["name"] for one in manifests() if one["kind"] == "ServiceAccount"}
    assert made == set(ACCOUNTS)


if __name__ == "__main__":
    print("\n".join(lines()))
