"""domain: the objects that tell the API server to call the webhooks."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from jobs.names import GROUP, VERSION

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
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration."""
    mutating = _webhook(scope, MUTATE, scope.mutate_path, ["ipujobs"])
    validating = _webhook(scope, VALIDATE, scope.validate_path, ["ipujobs", "ipujobs/scale"])
    return [
        _configuration("MutatingWebhookConfiguration", mutating),
        _configuration("ValidatingWebhookConfiguration", validating),
    ]


def _configuration(kind: str, webhook: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "ipuhub"}},
        "webhooks": [webhook],
    }


def _webhook(scope: WebhookScope, name: str, path: str, resources: list[str]) -> dict[str, Any]:
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
    if scope.skipped_namespaces:
        webhook["namespaceSelector"] = {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": list(scope.skipped_namespaces),
                }
            ]
        }
    return webhook
