"""Every parameter of the chart with another value: it reaches the objects, and a server takes them.

The objects that differ are sent with `kubectl apply --dry-run=server`, which runs the server's
validation and admission and stores nothing. Unknown fields are refused. The golden file lists which
fields of which objects each parameter changes; after a wanted change, `IPUHUB_GOLDEN=write` and the
test of that file write it again.
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.documents import read_yaml, write_documents
from tests.chart.rendering import CHART, ROOT, template_of
from tests.realnodes.certmanager import CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.devcluster.conformance.kubectl import Kubectl

NAMESPACE = "ipus"
GOLDEN = ROOT / "tests/golden/chart-matrix.txt"
# Everything on, so that every parameter has an object to reach.
BASE: dict[str, Any] = {
    "vipuServer.enabled": True,
    "database.enabled": True,
    "extendedScheduler.enabled": True,
    "extendedScheduler.image.tag": "v1.37.2",
    "ipuVisibility.enabled": True,
    "web.hosts": ["ipuhub.example"],
    "web.ingress.enabled": True,
    "web.oidc.issuer": "https://login.example/lab",
    "web.oidc.clientId": "ipuhub",
    "web.existingSecret": "web",
    "monitoring.podMonitor.enabled": True,
    "monitoring.prometheusRule.enabled": True,
    "monitoring.dashboard.enabled": True,
}
_RESOURCES = {"requests": {"cpu": "20m"}, "limits": {"memory": "1Gi"}}
_TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_TERM]}}}
# Values by the whole name, or by its last part. None: the type's own (`_others`).
VALUES: dict[str, Any] = {
    "resources": _RESOURCES,
    "affinity": _AFFINITY,
    "tolerations": [{"key": "ipu", "operator": "Exists", "effect": "NoSchedule"}],
    "settings": {"IPUHUB_LOG_LEVEL": "DEBUG"},
    "securityContext": {"runAsUser": 1000},
    "podSecurityPolicyContext": {"runAsUser": 1000},
    "podSecurityContext": {"runAsUser": 1000},
    "controller.dnsPolicy": "Default",
    "vipuServerLabel": "disk=ssd",
    "vipuServer.nodeLabel": "disk=ssd",
    "vipuControllers": "vipu.example:8090:disk=ssd",
    "storage": "10Gi",
    "size": "10Gi",
    "interval": "1m30s",
    "usage.schedule": "30 6 * * 1-5",
    "pullPolicy": "Always",
    "admissionWebhooks.scope": "team-a",
    "admissionWebhooks.timeoutSeconds": 20,
    "trustedProxies": ["10.0.0.0/8"],
    "web.actions.users": {"admin": "ops@lab.example"},
    "web.actions.singleSignOn": "{issuer}#{subject}",
    "controller.serviceAccount.create": False,
    "global.imagePullSecrets": ["registry"],
    # The other modes come with what they need, by the parameters beside it.
    "admissionWebhooks.certificate.mode": "helm",
}
# What a parameter needs beside it, or instead of a part of the base.
BESIDE: dict[str, dict[str, Any]] = {
    "admissionWebhooks.certificate.existingSecret": {
        "admissionWebhooks.certificate.caBundle": "-----BEGIN CERTIFICATE-----"
    },
    "admissionWebhooks.certificate.caBundle": {
        "admissionWebhooks.certificate.existingSecret": "served"
    },
    "database.url": {"database.enabled": False},
    "database.existingSecret": {"database.enabled": False},
    "database.caKey": {"database.enabled": False, "database.existingSecret": "postgres"},
    "web.oidc.caKey": {"web.oidc.caConfigMap": "corporate"},
    "web.actions.enabled": {"web.actions.users": {"admin": "ops@lab.example"}},
}
for _name in ("vipuServerAddr", "vipuServerPort", "vipuServerLabel", "vipuControllers"):
    BESIDE[_name] = {"vipuServer.enabled": False}
BESIDE["vipuServerPort"]["vipuServerAddr"] = BESIDE["vipuServerLabel"]["vipuServerAddr"] = "vipu"
BESIDE["admissionWebhooks.patch.enabled"] = {"admissionWebhooks.certificate.mode": "certManager"}
BESIDE["vipuServer.enabled"] = {"vipuServerAddr": "vipu"}
for _name in ("issuer.name", "issuer.kind"):
    BESIDE[f"admissionWebhooks.certificate.{_name}"] = {
        "admissionWebhooks.certificate.mode": "certManager",
        "admissionWebhooks.certificate.issuer.name": "site",
    }
BESIDE["networkPolicies.egress.databasePorts"] = {
    "database.enabled": False,
    "database.url": "postgresql://database.example/ipuhub",
}
BESIDE["podDisruptionBudgets.enabled"] = {"vipuProxy.replicas": 2}
for _name in ("size", "storageClass"):
    BESIDE[f"vipuServer.persistence.{_name}"] = {"vipuServer.persistence.enabled": True}
_SECURE = {
    "vipuServer.secure.enabled": True,
    "vipuServer.secure.secret": "vipu-server-tls",
    "vipuProxy.accessSecret": "vipu-access",
}
BESIDE["vipuServer.secure.secret"] = _SECURE
BESIDE["vipuServer.secure.agentSecret"] = _SECURE | {"vipuServer.agents.enabled": True}
# What a parameter needs that is refused without it.
WITH: dict[str, dict[str, Any]] = {
    "vipuServer.secure.enabled": _SECURE,
    "mail.host": {"mail.from": "ipuhub@lab.example"},
}
# Refused when they are missing, with what stands beside them.
REQUIRED = {
    "admissionWebhooks.certificate.existingSecret",
    "admissionWebhooks.certificate.caBundle",
    "database.existingSecret",
    "database.url",
    "vipuControllers",
    "vipuServerAddr",
    "vipuServer.secure.secret",
    "vipuServer.secure.agentSecret",
}
# Kinds that a cluster serves only with the software they belong to.
FOREIGN = (CRDS, CHART.parents[1] / "tests/chart/prometheus-operator-crds.yaml")


def _parameters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and schema of every parameter by its first name (test_chart_values has the others)."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    stack = [("", schema)]
    while stack:
        name, node = stack.pop()
        if "properties" in node and node.get("additionalProperties") is False:
            stack += [
                (f"{name}.{key}".lstrip("."), each) for key, each in node["properties"].items()
            ]
        else:
            yield name, node


def _default(name: str) -> Any:
    """The parameter's value in BASE or values.yaml; KeyError: another name of a parameter."""
    if name in BASE:
        return BASE[name]
    found = DEFAULTS
    for part in name.split("."):
        found = found[part]
    return found


def _is_first_name(name: str) -> bool:
    try:
        _default(name)
    except KeyError:
        return False
    return True


DEFAULTS = read_yaml((CHART / "values.yaml").read_text(encoding="utf-8"))
PARAMETERS = {name: node for name, node in sorted(_parameters()) if _is_first_name(name)}
for _name in PARAMETERS:
    if _name.startswith("vipuServer.agents.") and _name != "vipuServer.agents.enabled":
        BESIDE[_name] = {"vipuServer.agents.enabled": True}


def _others(name: str) -> list[Any]:
    """Values of the parameter that are not its default."""
    leaf, default, schema = name.rsplit(".", 1)[-1], _default(name), PARAMETERS[name]
    for key in (name, leaf):
        if key in VALUES:
            return [VALUES[key]]
    if "enum" in schema:
        # Either case of `ClusterIP` is the same type.
        return [each for each in schema["enum"] if each.lower() != default.lower() and each]
    match schema.get("type"):
        case "boolean":
            return [not default]
        case "integer":
            return [(default or 0) + 1]
        case "string":
            return ["other"]
        case "array":
            return [[8443 if "integer" in json.dumps(schema) else "other"]]
    return [{"example.com/one": "two"}]


def _values(given: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in given.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def _render(given: dict[str, Any]) -> list[str]:
    """The chart's documents with these values, as JSON."""
    done = template_of(_values(given), namespace=NAMESPACE)
    assert done.returncode == 0, f"{given}: {done.stderr}"
    parts = re.split("^---\n", done.stdout, flags=re.MULTILINE)
    return [each for each in map(_as_json, parts) if each]


@cache  # nearly all documents are the same with each value
def _as_json(text: str) -> str:
    """Return a document without the parts that each rendering generates; empty where it is."""
    document = read_yaml(text)
    if document and document["kind"] == "Secret":  # passwords
        document["data"] = dict.fromkeys(document.get("data") or (), "")
        if "password" in document.get("stringData", ()):
            document["stringData"] = dict.fromkeys(document["stringData"], "")
    return json.dumps(document, sort_keys=True) if document else ""


@cache
def _rendered(given: str) -> tuple[str, ...]:
    return tuple(_render(json.loads(given)))


@cache  # two tests use each rendering
def _before_and_after(name: str, value: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The documents without and with this value, which is given as JSON."""
    beside = {key: each for key, each in BESIDE.get(name, {}).items() if key != name}
    after = _render(BASE | beside | WITH.get(name, {}) | {name: json.loads(value)})
    # A parameter that is required beside the others is compared with another value of its own.
    before = {name: f"{json.loads(value)}-before"} if name in REQUIRED else {}
    return _rendered(json.dumps(BASE | beside | before, sort_keys=True)), tuple(after)


def _changed(name: str, value: Any) -> list[str]:
    """The objects that are otherwise, or are there only, with this value; else those that go."""
    before, after = _before_and_after(name, json.dumps(value))
    return [each for each in after if each not in before] or [
        each for each in before if each not in after
    ]


def _by_name(documents: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for document in map(json.loads, documents):
        place = document["metadata"].get("namespace", NAMESPACE)
        prefix = "" if place == NAMESPACE else f"{place}/"
        found[f"{document['kind']}/{prefix}{document['metadata']['name']}"] = document
    return found


def _paths(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The fields that differ. An item of a list goes by its name, if it has one."""
    if before == after:
        return
    sides = [_as_mapping(side) for side in (before, after)]
    if not all(isinstance(side, dict) and side for side in sides):
        yield path
        return
    for key in sorted({*sides[0], *sides[1]}):
        inner = f"{path}.{key}".lstrip(".").replace(".[", "[")
        if key in sides[0] and key in sides[1]:
            yield from _paths(sides[0][key], sides[1][key], inner)
        else:
            yield inner + ("-" if key in sides[0] else "+")


def _as_mapping(node: Any) -> Any:
    if not isinstance(node, list):
        return node
    names = [each.get("name") if isinstance(each, dict) else None for each in node]
    if all(names) and len(set(names)) == len(names):
        return {f"[{name}]": each for name, each in zip(names, node, strict=True)}
    return {f"[{number}]": each for number, each in enumerate(node)}


def _effect(name: str, value: Any) -> list[str]:
    """The lines of the golden file about this value."""
    before, after = map(_by_name, _before_and_after(name, json.dumps(value)))
    lines = [f"  - {each}" for each in sorted(set(before) - set(after))]
    lines += [f"  + {each}" for each in sorted(set(after) - set(before))]
    for each in sorted(set(before) & set(after)):
        if paths := list(_paths(before[each], after[each])):
            lines.append(f"  {each}: {' '.join(paths)}")
    return [f"{name}={json.dumps(value)}", *(lines or ["  nothing"])]


def _ignored(name: str) -> bool:
    """Return whether the parameter's text says that it does nothing, alone or in general."""
    return "gnored" in PARAMETERS[name]["description"] or name in {
        "admissionWebhooks.patch.enabled",
        "crds.enabled",
    }


@pytest.fixture(scope="module")
def groups(real: Kubectl) -> Iterator[set[str]]:
    """API groups that the server serves, with the kinds of cert-manager and the Prometheus Operator
    though without them; the chart's namespace is there meanwhile."""
    files = [word for file in FOREIGN for word in ("-f", str(file))]
    real.run("apply", "--server-side", *files)
    real.run("wait", "--for=condition=Established", "--timeout=60s", *files)
    real.run("create", "namespace", NAMESPACE)
    # Pods are refused, and of the templates of others it warns.
    standard = (f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn"))
    real.run("label", "namespace", NAMESPACE, *standard)
    versions = real.run("api-versions").split()
    yield {version.rpartition("/")[0] for version in versions}
    real.run("delete", "namespace", NAMESPACE, "--wait=false")
    real.run("delete", *files, "--wait=false")


def _are_taken(real: Kubectl, documents: list[dict[str, Any]]) -> str:
    """Assert that the server would store each of them; return its warnings."""
    for each in documents:
        if each["kind"] == "Pod":  # its account would have to be stored before it
            del each["spec"]["serviceAccountName"]
    given = write_documents(documents)
    options = ("--dry-run=server", "--validate=strict", "-n", NAMESPACE)
    done = real.call("apply", *options, "-f", "-", stdin=given)
    assert not documents or done.returncode == 0, done.stderr
    return done.stderr


def test_each_parameter_changes_the_fields_that_were_reviewed() -> None:
    changes = [(name, value) for name in PARAMETERS for value in _others(name)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        effects = list(pool.map(lambda one: _effect(*one), changes))
    text = "".join(f"{line}\n" for lines in effects for line in lines)
    if os.environ.get("IPUHUB_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("part", sorted({name.split(".")[0] for name in PARAMETERS}))
def test_another_value_reaches_objects_that_a_server_takes(
    real: Kubectl, groups: set[str], part: str
) -> None:
    changes = [
        (name, value)
        for name in PARAMETERS
        if name.split(".")[0] == part
        for value in _others(name)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda one: _changed(*one), changes))
    silent = [
        name
        for (name, _), made in zip(changes, found, strict=True)
        if not made and not _ignored(name)
    ]
    assert silent == []
    sent = {each for made in found for each in made}
    documents = [json.loads(each) for each in sorted(sent)]
    assert {each["apiVersion"].rpartition("/")[0] for each in documents} <= groups
    _are_taken(real, documents)


def test_everything_at_once_is_taken_where_pods_have_to_be_restricted(
    real: Kubectl, groups: set[str]
) -> None:
    documents = [json.loads(each) for each in _render(BASE)]
    assert {"PodMonitor", "PrometheusRule"} <= {each["kind"] for each in documents}
    assert "PodSecurity" not in _are_taken(real, documents)
    documents = [json.loads(each) for each in _render(BASE | {"controller.hostNetwork": True})]
    assert "would violate PodSecurity" in _are_taken(real, documents)


SITE_ISSUER = {"issuer.name": "site", "issuer.kind": "ClusterIssuer"}


@pytest.mark.parametrize(("given", "number"), [({}, 4), (SITE_ISSUER, 1)], ids=["own", "site"])
def test_cert_managers_kinds_have_every_field_that_the_chart_fills(
    real: Kubectl, groups: set[str], given: dict[str, str], number: int
) -> None:
    chosen = {f"admissionWebhooks.certificate.{key}": value for key, value in given.items()}
    made = _render(BASE | {"admissionWebhooks.certificate.mode": "certManager"} | chosen)
    documents = [json.loads(each) for each in made]
    objects = [each for each in documents if each["apiVersion"] == "cert-manager.io/v1"]
    assert len(objects) == number
    assert "cert-manager.io" in groups
    _are_taken(real, objects)
