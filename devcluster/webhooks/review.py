"""domain: AdmissionReviews: the request to a webhook and the meaning of its response.

Also which admission webhooks match a request: rules, scope and selectors.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from devcluster.status import StatusError
from devcluster.storage.selectors import selector_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devcluster.paths import User
    from devcluster.schemas.kinds import Kind

Body = dict[str, Any]
_REVIEW: Final = ("admission.k8s.io/v1", "AdmissionReview")
_SHOWN_REVIEW: Final = "admission.k8s.io/v1, Kind=AdmissionReview"


class ReviewError(Exception):
    """A webhook gave no answer that means anything; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A webhook's answer; `patch` is a JSON patch as it was sent, not yet checked."""

    allowed: bool
    result: Body | None = None
    patch: bytes = b""
    warnings: list[str] = field(default_factory=list)


def build_review(uid: str, action: Action, new: Body | None, old: Body | None) -> Body:
    """Build the AdmissionReview of one call."""
    group, version, name = action.object_kind
    kind = {"group": group, "version": version, "kind": name}
    resource = {
        "group": action.kind.group,
        "version": action.kind.version,
        "resource": action.kind.plural,
    }
    request: Body = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "operation": action.operation,
        "userInfo": user_info(action.user),
        "object": new,
        "oldObject": old,
        "dryRun": action.dry_run,
        "options": action.options,
    }
    if action.name:
        request["name"] = action.name
    if action.subresource:
        request |= {"subResource": action.subresource, "requestSubResource": action.subresource}
    namespace = action.name if action.kind.plural == "namespaces" else action.namespace
    if namespace:
        request["namespace"] = namespace
    return {"apiVersion": _REVIEW[0], "kind": _REVIEW[1], "request": request}


def user_info(user: User) -> Body:
    """The user as reviews show him."""
    info: Body = {"username": user.name, "groups": list(user.groups)}
    if user.extra:
        info["extra"] = dict(user.extra)
    return {**info, "uid": user.uid} if user.uid else info


def read_verdict(answer: Any, uid: str, *, mutates: bool) -> Verdict:
    """Read a webhook's AdmissionReview. Raises ReviewError."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise ReviewError("webhook response was absent")
    if response.get("uid") != uid:
        raise ReviewError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    found = (answer.get("apiVersion", ""), answer.get("kind", ""))
    if found != _REVIEW:
        group = found[0] or "/"
        raise ReviewError(
            f"expected webhook response of {_SHOWN_REVIEW}, got {group}, Kind={found[1]}"
        )
    result, warnings = response.get("status"), response.get("warnings") or []
    if not isinstance(response.get("allowed", False), bool) or not _are_texts(warnings):
        raise ReviewError("response.allowed must be a boolean and response.warnings strings")
    patch = _read_patch(response, mutates=mutates)
    is_allowed = response.get("allowed", False)
    return Verdict(is_allowed, result if isinstance(result, dict) else None, patch, warnings)


def refusal(name: str, result: Body | None) -> StatusError:
    """The refusal of a request that webhook `name` denied, in the server's words."""
    result = result or {}
    denied = f'admission webhook "{name}" denied the request'
    reason, code = str(result.get("reason") or ""), result.get("code")
    explanation = str(result.get("message") or reason)
    message = f"{denied}: {explanation}" if explanation else f"{denied} without explanation"
    is_refusal = isinstance(code, int) and code >= 400
    details = result.get("details")
    return StatusError(
        code if is_refusal and code is not None else 400,
        reason,
        message,
        details if isinstance(details, dict) else None,
    )


def internal(message: str) -> StatusError:
    """500: something under the request failed."""
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def parse_patch(data: bytes) -> list[Any]:
    """The operations of a webhook's patch. StatusError 500, whatever the failure policy is."""
    try:
        patch = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise internal(str(error)) from error
    if not isinstance(patch, list):
        raise internal("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    return patch


def _read_patch(response: Body, *, mutates: bool) -> bytes:
    encoded, kind = response.get("patch"), response.get("patchType")
    if not encoded:
        return b""
    if not mutates:
        raise ReviewError("webhook may not return response.patch")
    if kind is None:
        raise ReviewError("webhook returned response.patch but not response.patchType")
    if kind != "JSONPatch":
        raise ReviewError(f'webhook returned invalid response.patchType of "{kind}"')
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ReviewError(f"response.patch is no base64: {error}") from error


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING: Final = f"validatingwebhookconfigurations.{GROUP}"


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a stored configuration, its defaults filled in."""

    configuration: str
    spec: Body
    mutates: bool

    @property
    def name(self) -> str:
        """Its qualified name, as refusals give it."""
        return str(self.spec["name"])

    @property
    def is_ignorable(self) -> bool:
        """Return whether a request proceeds if this webhook cannot be called."""
        return bool(self.spec.get("failurePolicy") == "Ignore")

    @property
    def conditions(self) -> list[Body]:
        """Return the conditions under which this webhook is called."""
        return self.spec.get("matchConditions") or []

    @property
    def seconds(self) -> int:
        """Return the seconds that a call may take."""
        return int(self.spec.get("timeoutSeconds") or 10)


@dataclass(frozen=True, slots=True)
class Action:
    """The request to the API, as rules and reviews see it."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    user: User
    options: Body
    subresource: str = ""
    dry_run: bool = False

    @property
    def object_kind(self) -> tuple[str, str, str]:
        """Group, version and kind of the object in the request."""
        below = self.kind.subresource(self.subresource)
        if below is None:
            return self.kind.group, self.kind.version, self.kind.kind
        return (
            below.group or self.kind.group,
            below.version or self.kind.version,
            below.kind,
        )

    def named(self, body: Body | None) -> Action:
        """The action with the name its object has by now (a generated name)."""
        name = str(((body or {}).get("metadata") or {}).get("name", ""))
        return self if self.name or not name else replace(self, name=name)


def read_hooks(configurations: Iterable[Body], *, mutates: bool) -> tuple[Hook, ...]:
    """The webhooks in the order in which they are called: configurations by name."""
    ordered = sorted(configurations, key=lambda body: str(body["metadata"]["name"]))
    return tuple(
        Hook(body["metadata"]["name"], spec, mutates)
        for body in ordered
        for spec in body.get("webhooks") or ()
    )


def is_exempt(kind: Kind) -> bool:
    """Return whether no webhook ever sees objects of this kind: else a webhook could lock itself
    in."""
    return kind.resource_name in {MUTATING, VALIDATING}


def matches_rules(hook: Hook, action: Action) -> bool:
    """Return whether any rule of the webhook names the operation and the resource."""
    return any(_matches_rule(rule, action) for rule in hook.spec.get("rules") or ())


def matches_selectors(
    hook: Hook,
    objects: Iterable[Body | None],
    namespace_labels: Mapping[str, str] | None,
) -> bool:
    """Return whether the selectors match the request: any of its objects, and its namespace.

    `namespace_labels` is None for objects without a namespace, which every selector matches.
    """
    in_namespace = selector_of(hook.spec.get("namespaceSelector") or {})
    if namespace_labels is not None and not in_namespace.matches(namespace_labels):
        return False
    wanted = selector_of(hook.spec.get("objectSelector") or {})
    if not wanted.requirements:
        return True
    return any(
        wanted.matches((body.get("metadata") or {}).get("labels"))
        for body in objects
        if body is not None
    )


def _matches_rule(rule: Mapping[str, Any], action: Action) -> bool:
    return (
        _has(rule, "operations", action.operation)
        and _has(rule, "apiGroups", action.kind.group)
        and _has(rule, "apiVersions", action.kind.version)
        and any(_matches_resource(text, action) for text in rule.get("resources") or ())
        and _matches_scope(rule.get("scope") or "*", action)
    )


def _matches_resource(text: str, action: Action) -> bool:
    resource, _, subresource = text.partition("/")
    return resource in {"*", action.kind.plural} and subresource in {"*", action.subresource}


def _matches_scope(scope: str, action: Action) -> bool:
    return scope == "*" or (scope == "Namespaced") == action.kind.namespaced


def _has(rule: Mapping[str, Any], field: str, value: str) -> bool:
    values = rule.get(field) or ()
    return "*" in values or value in values
