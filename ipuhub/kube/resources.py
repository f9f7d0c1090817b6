"""io: resource types of the Kubernetes API, their paths, and types shared by client and callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type: `plural` in `group`/`version`; the core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Value of `apiVersion` in its objects: `v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Path of the collection, or of one object (`name`), or of its subresource.

        Without a namespace the collection of a namespaced resource is the collection of all
        namespaces. Raises ValueError for one namespaced object without its namespace.
        """
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name}: a namespaced object needs its namespace")
        parts = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
PODS: Final = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS: Final = Resource("", "v1", "events", "Event")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PERSISTENT_VOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
)
PERSISTENT_VOLUME_CLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
MUTATING_WEBHOOKS: Final = Resource(
    _ADMISSION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    _ADMISSION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
Manifest: TypeAlias = dict[str, Any]
"""One Kubernetes object as JSON. What list and watch return always has apiVersion and kind."""
PatchType: TypeAlias = Literal["merge", "json", "strategic"]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write beside its object. The client places each where the server reads it.

    `dry_run`: the server judges the write (access, admission, schema) and stores nothing.
    `manager` names who owns the written fields, `is_strict` refuses fields that the server does not
    know; a deletion has neither. `acts_as` is a user to impersonate, in these `groups`;
    `on_warning` gets each warning of the answer.
    """

    dry_run: bool = False
    manager: str = ""
    is_strict: bool = False
    acts_as: str = ""
    groups: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    on_warning: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class ListResult:
    """All objects of one list, and the version a watch continues from without a gap."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change: `type` is ADDED, MODIFIED, DELETED or BOOKMARK.

    A BOOKMARK's object carries nothing but metadata.resourceVersion.
    """

    type: str
    object: Manifest

    @property
    def resource_version(self) -> str:
        """The version to continue from after this event."""
        version: str = self.object["metadata"]["resourceVersion"]
        return version
