"""domain: which admission webhooks a request concerns: rules, scope and selectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from devcluster.storage.selectors import selector_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devcluster.schemas.kinds import Kind
    from devcluster.users import User

Body = dict[str, Any]
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
        """Whether a request goes on when this webhook cannot be called."""
        return bool(self.spec.get("failurePolicy") == "Ignore")

    @property
    def is_reinvocable(self) -> bool:
        """Whether it wants to see what later webhooks made of the object."""
        return bool(self.spec.get("reinvocationPolicy") == "IfNeeded")

    @property
    def seconds(self) -> int:
        """How long a call may take."""
        return int(self.spec.get("timeoutSeconds") or 10)


@dataclass(frozen=True, slots=True)
class Action:
    """What is asked of the API, as rules and reviews see it."""

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
        """The action with the name its object has by now (a generated one)."""
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
    """Whether no webhook ever sees objects of this kind: else one could lock itself in."""
    return kind.resource_name in {MUTATING, VALIDATING}


def matches_rules(hook: Hook, action: Action) -> bool:
    """Whether any rule of the webhook names the operation and the resource."""
    return any(_matches_rule(rule, action) for rule in hook.spec.get("rules") or ())


def matches_selectors(
    hook: Hook,
    objects: Iterable[Body | None],
    namespace_labels: Mapping[str, str] | None,
) -> bool:
    """Whether the selectors take the request in: any of its objects, and its namespace.

    `namespace_labels` is None for what lies in no namespace, which every selector takes in.
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
