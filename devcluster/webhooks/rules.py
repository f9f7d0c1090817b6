"""domain: defaults and rules of webhook configurations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from devcluster.status import duplicate, forbidden_field, invalid_value, required, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devcluster.status import (
        FieldError,
    )

Body = dict[str, Any]
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CHOICES: Final = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "sideEffects": ("None", "NoneOnDryRun"),
    "reinvocationPolicy": ("Never", "IfNeeded"),
}
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_LONGEST_SECONDS: Final = 30


def default_mutating(body: Body) -> None:
    """Fill in what the API server fills in."""
    for webhook in body.get("webhooks") or ():
        webhook.setdefault("reinvocationPolicy", "Never")
        _default_webhook(webhook)


def default_validating(body: Body) -> None:
    """Fill in what the API server fills in."""
    for webhook in body.get("webhooks") or ():
        _default_webhook(webhook)


def _default_webhook(webhook: Body) -> None:
    webhook.setdefault("failurePolicy", "Fail")
    webhook.setdefault("matchPolicy", "Equivalent")
    webhook.setdefault("timeoutSeconds", 10)
    for name in ("namespaceSelector", "objectSelector"):
        webhook.setdefault(name, {})
    service = (webhook.get("clientConfig") or {}).get("service")
    if service is not None:
        service.setdefault("port", 443)
    for rule in webhook.get("rules") or ():
        rule.setdefault("scope", "*")


def webhook_faults(body: Body) -> Iterator[FieldError]:
    """What is wrong with a configuration."""
    names: set[str] = set()
    for number, webhook in enumerate(body.get("webhooks") or ()):
        path, name = f"webhooks[{number}]", webhook.get("name", "")
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        yield from _faults(path, webhook)


def _faults(path: str, webhook: Body) -> Iterator[FieldError]:
    yield from _name_faults(f"{path}.name", webhook.get("name", ""))
    for field, choices in _CHOICES.items():
        value = webhook.get(field)
        if value is not None and value not in choices:
            yield unsupported(f"{path}.{field}", value, choices)
    yield from _version_faults(f"{path}.admissionReviewVersions", webhook)
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= _LONGEST_SECONDS:
        why = "the timeout value must be between 1 and 30 seconds"
        yield invalid_value(f"{path}.timeoutSeconds", seconds, why)
    if webhook.get("matchConditions"):
        yield forbidden_field(
            f"{path}.matchConditions", "the embedded API evaluates no CEL expressions"
        )
    for number, rule in enumerate(webhook.get("rules") or ()):
        yield from _rule_faults(f"{path}.rules[{number}]", rule)
    yield from _client_faults(f"{path}.clientConfig", webhook.get("clientConfig") or {})


def _name_faults(path: str, name: str) -> Iterator[FieldError]:
    parts = name.split(".")
    if not name:
        yield required(path)
    elif not all(_LABEL.fullmatch(part) for part in parts):
        yield invalid_value(
            path, name, "a lowercase RFC 1123 subdomain must consist of lower case ..."
        )
    elif len(parts) < 3:
        yield invalid_value(
            path, name, "should be a domain with at least three segments separated by dots"
        )


def _version_faults(path: str, webhook: Body) -> Iterator[FieldError]:
    versions = webhook.get("admissionReviewVersions") or []
    if not versions:
        yield required(path, "must specify one of v1, v1beta1")
    elif "v1" not in versions:
        why = "must include at least one of v1, v1beta1; the embedded API speaks v1"
        yield invalid_value(path, versions, why)


def _rule_faults(path: str, rule: Body) -> Iterator[FieldError]:
    for field in ("operations", "apiGroups", "apiVersions", "resources"):
        values = rule.get(field) or []
        if not values:
            yield required(f"{path}.{field}")
        if "*" in values and len(values) > 1 and field != "resources":
            yield invalid_value(
                f"{path}.{field}", values, f"if '*' is present, must not specify other {field}"
            )
    for number, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            yield unsupported(f"{path}.operations[{number}]", operation, _OPERATIONS)
    if rule.get("scope", "*") not in {"*", "Cluster", "Namespaced"}:
        yield unsupported(f"{path}.scope", rule["scope"], ("*", "Cluster", "Namespaced"))


def _client_faults(path: str, client: Body) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_faults(f"{path}.url", url)
    elif service is not None:
        for field in ("namespace", "name"):
            if not service.get(field):
                yield required(f"{path}.service.{field}", f"service {field} is required")


def _url_faults(path: str, url: str) -> Iterator[FieldError]:
    parts, form = urlsplit(url), "; desired format: https://host[/path]"
    if parts.scheme != "https":
        yield invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{form}")
    if not parts.netloc:
        yield invalid_value(path, parts.netloc, f"host must be specified{form}")
    for part, name in ((parts.username, "user information"), (parts.fragment, "fragments")):
        if part:
            yield invalid_value(path, part, f"{name} are not permitted in the URL")
    if parts.query:
        yield invalid_value(path, parts.query, "query parameters are not permitted in the URL")
