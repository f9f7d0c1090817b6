"""domain: the objects that make the API server call the webhooks."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from jobs.ipujob.names import GROUP, VERSION
from jobs.ipujob.privileges import LABEL_POD_PROFILE, PROFILES

MUTATE = "mutate.ipujobs.graphcore.ai"
VALIDATE = "validate.ipujobs.graphcore.ai"
NAME = "ipuhub-ipujobs"


BEING_DELETED = {
    "name": "not-being-deleted",
    "expression": "request.operation == 'CREATE' || !has(object.metadata.deletionTimestamp)"
    " || object.spec != oldObject.spec"
    " || has(object.metadata.annotations) != has(oldObject.metadata.annotations)"
    " || (has(object.metadata.annotations)"
    " && object.metadata.annotations != oldObject.metadata.annotations)",
}
"""No webhook that is away keeps a deleted job: finalizers go unasked. What users write into the
job, who created it among that, is still asked about."""


@dataclass(frozen=True, slots=True)
class Service:
    """The Service in front of the webhooks."""

    namespace: str
    name: str
    port: int = 443


@dataclass(frozen=True, slots=True)
class WebhookScope:
    """The address of the webhooks, and the requests that are sent to them.

    `at` is https://host:port or a Service. `ca_pem` empty: run_webhooks writes the CA.
    `failure_policy` is Fail or Ignore. The API server calls the webhooks for the `namespaces`
    (none: all) without the `skipped_namespaces`. With `has_conditions` (Kubernetes 1.28 and later)
    it does not call them for jobs being deleted and for writes of `exempt_users`.
    """

    at: str | Service
    ca_pem: bytes
    mutate_path: str
    validate_path: str
    name: str = NAME
    failure_policy: str = "Fail"
    timeout_seconds: int = 10
    namespaces: tuple[str, ...] = ()
    skipped_namespaces: tuple[str, ...] = ()
    exempt_users: tuple[str, ...] = ()
    has_conditions: bool = False


def build_configurations(scope: WebhookScope) -> list[dict[str, Any]]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration.

    A review does not say how its namespace is labelled, so that the API server itself chooses: it
    asks about namespaces with a pod profile of their own at a path that ends with the profile.
    """
    judged, path = ["ipujobs", "ipujobs/scale"], scope.validate_path
    mutating = _webhook(scope, scope.mutate_path, MUTATE, ["ipujobs"])
    others = _label(LABEL_POD_PROFILE, "NotIn", [*PROFILES])
    validating = _webhook(scope, path, VALIDATE, judged, others)
    by_label = [
        _webhook(
            scope,
            f"{path}/{profile}",
            f"{profile}.{VALIDATE}",
            judged,
            _label(LABEL_POD_PROFILE, "In", [profile]),
        )
        for profile in PROFILES
    ]
    return [
        _configuration("MutatingWebhookConfiguration", scope.name, [mutating]),
        _configuration("ValidatingWebhookConfiguration", scope.name, [validating, *by_label]),
    ]


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "ipuhub"}},
        "webhooks": webhooks,
    }


def _webhook(
    scope: WebhookScope,
    path: str,
    name: str,
    resources: list[str],
    labelled: dict[str, Any] | None = None,
) -> dict[str, Any]:
    webhook: dict[str, Any] = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": scope.failure_policy,
        "timeoutSeconds": scope.timeout_seconds,
        "matchPolicy": "Equivalent",
        "clientConfig": _client(scope, path),
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": [VERSION],
                "operations": ["CREATE", "UPDATE"],
                "resources": resources,
                "scope": "Namespaced",
            }
        ],
    }
    selected = [*([labelled] if labelled else []), *_chosen(scope)]
    if selected:
        webhook["namespaceSelector"] = {"matchExpressions": selected}
    if scope.has_conditions:
        webhook["matchConditions"] = _conditions(scope)
    return webhook


def _client(scope: WebhookScope, path: str) -> dict[str, Any]:
    client: dict[str, Any]
    if isinstance(scope.at, Service):
        service = {"namespace": scope.at.namespace, "name": scope.at.name, "path": path}
        client = {"service": {**service, "port": scope.at.port}}
    else:
        client = {"url": scope.at + path}
    if scope.ca_pem:
        client["caBundle"] = base64.b64encode(scope.ca_pem).decode()
    return client


def _chosen(scope: WebhookScope) -> list[dict[str, Any]]:
    """The namespaces for which the webhooks are called, by name."""
    key = "kubernetes.io/metadata.name"
    pairs = (("In", scope.namespaces), ("NotIn", scope.skipped_namespaces))
    return [_label(key, operator, [*names]) for operator, names in pairs if names]


def _conditions(scope: WebhookScope) -> list[dict[str, str]]:
    conditions = [BEING_DELETED]
    if scope.exempt_users:
        users = ", ".join(f"'{user}'" for user in scope.exempt_users)
        expression = f"!(request.userInfo.username in [{users}])"
        conditions.append({"name": "not-exempt-user", "expression": expression})
    return conditions


def _label(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}
