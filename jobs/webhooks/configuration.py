"""domain: the objects that tell the API server to call the webhooks."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from jobs.ipujob.names import GROUP, VERSION
from jobs.ipujob.privileges import LABEL_POD_PROFILE, PROFILES

MUTATE = "mutate.ipujobs.graphcore.ai"
VALIDATE = "validate.ipujobs.graphcore.ai"
NAME = "ipuhub-ipujobs"


@dataclass(frozen=True, slots=True)
class WebhookScope:
    """Where the webhooks answer, and when they are asked.

    `base_url` is https://host:port; `failure_policy` Fail or Ignore; `skipped_namespaces` are
    never asked about.
    """

    base_url: str
    ca_pem: bytes
    mutate_path: str
    validate_path: str
    failure_policy: str = "Fail"
    timeout_seconds: int = 10
    skipped_namespaces: tuple[str, ...] = ()


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
        _configuration("MutatingWebhookConfiguration", [mutating]),
        _configuration("ValidatingWebhookConfiguration", [validating, *by_label]),
    ]


def _configuration(kind: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "ipuhub"}},
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
        "clientConfig": {
            "url": scope.base_url + path,
            "caBundle": base64.b64encode(scope.ca_pem).decode(),
        },
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
    selected = [labelled] if labelled else []
    if scope.skipped_namespaces:
        skipped = list(scope.skipped_namespaces)
        selected.append(_label("kubernetes.io/metadata.name", "NotIn", skipped))
    if selected:
        webhook["namespaceSelector"] = {"matchExpressions": selected}
    return webhook


def _label(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}
