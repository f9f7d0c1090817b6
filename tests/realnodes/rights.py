"""Rights that the chart grants, and those that its accounts used by the API server's audit log.

A right is `account verb resource`, with the name where the rule has a name. Accounts and names are
without the release's own: `RELEASE` stands for it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.chart.rendering import render
from tests.devcluster.unit.demo.test_access_rules import granted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL_NAME = "gc-ipu-operator"  # of the release that rendering.py renders
_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):((?:[a-z0-9-]+-)?ipu-operator)-([a-z-]+)$")
_IN_THE_DEMO = {
    "ipuhub-operator": "controller",
    "ipuhub-proxy": "vipu-proxy",
    "ipuhub-webhooks": "webhook",
    "ipuhub-web": "web",
    "ipuhub-prober": "prober",
    "ipuhub-monitor": "monitor",
}
_BINDINGS = {"rolebindings", "clusterrolebindings"}


def rights_of_the_chart_alone(*values: str) -> set[str]:
    """Each right that the chart grants with these values, and the demo does not.

    e2e/test_rights_used compares the demo's rights with their use.
    """
    of_demo = {
        " ".join((_IN_THE_DEMO[account], verb, _named(resource, group)))
        for account, _, rule in granted()
        if account in _IN_THE_DEMO
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }
    # Names differ: the demo's objects are no release's.
    return {each for each in rights_granted(*values) if " ".join(each.split()[:3]) not in of_demo}


def rights_granted(*values: str) -> set[str]:
    """Each right of each account of the chart with these values."""
    documents = render(*values)
    rules = {
        (each["kind"], each["metadata"]["name"]): each["rules"]
        for each in documents
        if each["kind"] in {"Role", "ClusterRole"}
    }
    found: set[str] = set()
    for each in documents:
        if each["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            (subject,) = each["subjects"]
            account = subject["name"].removeprefix(f"{FULL_NAME}-")
            # A role of the cluster itself is not the chart's.
            for rule in rules.get((each["roleRef"]["kind"], each["roleRef"]["name"]), ()):
                found |= {f"{account} {right}" for right in _rights_of(rule)}
    return found


def _rights_of(rule: dict[str, Any]) -> Iterator[str]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield _right(verb, resource, group, name, FULL_NAME)


def _right(verb: str, resource: str, group: str, name: str, full_name: str) -> str:
    return f"{verb} {_named(resource, group)} {name.replace(full_name, 'RELEASE')}".rstrip()


def _named(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


@dataclass(frozen=True)
class Denial:
    """A request that was refused for want of a right."""

    at: datetime
    user: str
    right: str


class Audit:
    """The API server's audit log so far."""

    def __init__(self, log: Path) -> None:
        self.used: set[str] = set()
        self.denials: list[Denial] = []
        self._bindings = Bindings()
        with log.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(json.JSONDecodeError):  # still being written, or cut by SIGKILL
                    self._read(json.loads(line))

    def denials_with_rights(self) -> list[Denial]:
        """The denials while the account had all of its bindings.

        Pods that end go on asking for a while after an upgrade or Helm's removal of the release
        has taken their rights.
        """
        return [each for each in self.denials if not self._bindings.is_lacking(each.user, each.at)]

    def _read(self, event: dict[str, Any]) -> None:
        self._bindings.read(event)
        if "impersonatedUser" in event:
            return
        target = event.get("objectRef") or {"resource": event["requestURI"].partition("?")[0]}
        user, resource = event["user"]["username"], target["resource"]
        if target.get("subresource"):
            resource += f"/{target['subresource']}"
        request = (event["verb"], resource, target.get("apiGroup", ""), target.get("name", ""))
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
            if _ACCOUNT.match(user):
                at = datetime.fromisoformat(event["stageTimestamp"])
                self.denials.append(Denial(at, user, _right(*request, full_name=" ")))
        else:
            self._use(user, *request)
        answer = event.get("responseObject") or {}
        if answer.get("kind") == "SubjectAccessReview" and answer["status"].get("allowed"):
            self._use_by_review(answer["spec"])

    def _use_by_review(self, spec: dict[str, Any]) -> None:
        attributes = spec.get("resourceAttributes")
        if attributes:
            resource = "/".join(
                filter(None, (attributes["resource"], attributes.get("subresource")))
            )
            request = (
                attributes["verb"],
                resource,
                attributes.get("group", ""),
                attributes.get("name", ""),
            )
            self._use(spec["user"], *request)

    def _use(self, user: str, verb: str, resource: str, group: str, name: str) -> None:
        found = _ACCOUNT.match(user)
        if found:
            _, full_name, account = found.groups()
            for known in {"", name}:
                self.used.add(f"{account} {_right(verb, resource, group, known, full_name)}")


class Bindings:
    """The times at which accounts got and lost their rights; a binding is its namespace, if any,
    and its name."""

    def __init__(self) -> None:
        self._of: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._made: dict[tuple[str, str], list[datetime]] = defaultdict(list)
        self._deleted: dict[tuple[str, str], list[datetime]] = defaultdict(list)

    def is_lacking(self, user: str, at: datetime) -> bool:
        """Return whether one of the account's bindings was deleted by then, and not made again."""
        return any(self._is_gone(each, at) for each in self._of[user])

    def read(self, event: dict[str, Any]) -> None:
        """Note what the event did to a binding, if anything."""
        target = event.get("objectRef") or {}
        is_done = event.get("responseStatus", {}).get("code") in {200, 201}
        is_tried = "dryRun=" in event["requestURI"]
        if target.get("resource") not in _BINDINGS or is_tried or not is_done:
            return
        binding = (target.get("namespace", ""), target.get("name", ""))
        if event["verb"].startswith("delete"):
            # It may be denied from then on, before the deletion is answered.
            began = datetime.fromisoformat(event["requestReceivedTimestamp"])
            self._deleted[binding].append(began)
        elif event["verb"] in {"create", "update", "patch"}:
            made = event["responseObject"]
            binding = (binding[0], made["metadata"]["name"])
            self._made[binding].append(datetime.fromisoformat(event["stageTimestamp"]))
            for each in made.get("subjects", ()):
                if each["kind"] == "ServiceAccount":
                    account = f"system:serviceaccount:{each['namespace']}:{each['name']}"
                    self._of[account].add(binding)

    def _is_gone(self, binding: tuple[str, str], at: datetime) -> bool:
        namespace, _ = binding
        all_of_it = self._deleted.get((namespace, ""), []) if namespace else []
        ends = [*self._deleted.get(binding, []), *all_of_it]
        last = max((each for each in ends if each <= at), default=None)
        return last is not None and not any(last < each <= at for each in self._made[binding])
