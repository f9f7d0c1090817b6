"""domain: the built-in resources that the embedded API serves, declared once.

Discovery, routing, Tables, OpenAPI and the built-in schemas all read `KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
CREATE_ONLY = ("create",)
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """One path below an object; `group`/`version` only where its kind is of another group."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource of one group version, built in or made by a CRD.

    `subresources` are tuples of `Subresource`; `verbs` belong to the resource itself, so that a
    review kind (only "create") differs from a stored kind (`is_stored`).
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    list_kind: str = ""

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_name(self) -> str:
        """The kind of a list of these, `PodList`."""
        return self.list_kind or f"{self.kind}List"

    @property
    def resource_name(self) -> str:
        """`pods` or `deployments.apps`, as error messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_stored(self) -> bool:
        """Return whether objects of this kind are kept; reviews are only answered."""
        return "get" in self.verbs

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, or None."""
        return next((sub for sub in self.subresources if sub.name == name), None)

    @property
    def has_status(self) -> bool:
        """Return whether status is a subresource, so that the main path must not change it."""
        return self.subresource("status") is not None


def _status(kind: str) -> Subresource:
    return Subresource("status", kind, STATUS_VERBS)


_POD_SUBRESOURCES = (
    _status("Pod"),
    Subresource("log", "Pod", ("get",)),
    Subresource("binding", "Binding", CREATE_ONLY),
    Subresource("exec", "PodExecOptions", ("create", "get")),
    Subresource("attach", "PodAttachOptions", ("create", "get")),
)
_NAMESPACE_SUBRESOURCES = (
    Subresource("finalize", "Namespace", ("update",)),
    _status("Namespace"),
)
_TOKEN = Subresource("token", "TokenRequest", CREATE_ONLY, "authentication.k8s.io", "v1")
# A namespace collection cannot be deleted in one call.
_NAMESPACE_VERBS = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_ADMISSION = "admissionregistration.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_RBAC = "rbac.authorization.k8s.io"

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind("", "v1", "configmaps", "configmap", "ConfigMap", short_names=("cm",)),
    Kind("", "v1", "events", "event", "Event", short_names=("ev",)),
    Kind("", "v1", "namespaces", "namespace", "Namespace", namespaced=False, short_names=("ns",),
         verbs=_NAMESPACE_VERBS, subresources=_NAMESPACE_SUBRESOURCES),
    Kind("", "v1", "nodes", "node", "Node", namespaced=False, short_names=("no",),
         subresources=(_status("Node"),)),
    Kind("", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim",
         short_names=("pvc",), subresources=(_status("PersistentVolumeClaim"),)),
    Kind("", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume", namespaced=False,
         short_names=("pv",), subresources=(_status("PersistentVolume"),)),
    Kind("", "v1", "pods", "pod", "Pod", short_names=("po",), categories=("all",),
         subresources=_POD_SUBRESOURCES),
    Kind("", "v1", "secrets", "secret", "Secret"),
    Kind("", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", short_names=("sa",),
         subresources=(_TOKEN,)),
    Kind("", "v1", "services", "service", "Service", short_names=("svc",), categories=("all",),
         subresources=(_status("Service"),)),
    Kind(_ADMISSION, "v1", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration",
         "MutatingWebhookConfiguration", namespaced=False, categories=("api-extensions",)),
    Kind(_ADMISSION, "v1", "validatingwebhookconfigurations", "validatingwebhookconfiguration",
         "ValidatingWebhookConfiguration", namespaced=False, categories=("api-extensions",)),
    Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "customresourcedefinition",
         "CustomResourceDefinition", namespaced=False, short_names=("crd", "crds"),
         categories=("api-extensions",), subresources=(_status("CustomResourceDefinition"),)),
    Kind(_AUTHENTICATION, "v1", "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview",
         namespaced=False, verbs=CREATE_ONLY),
    Kind(_AUTHENTICATION, "v1", "tokenreviews", "tokenreview", "TokenReview",
         namespaced=False, verbs=CREATE_ONLY),
    Kind(_AUTHORIZATION, "v1", "selfsubjectaccessreviews", "selfsubjectaccessreview",
         "SelfSubjectAccessReview", namespaced=False, verbs=CREATE_ONLY),
    Kind(_AUTHORIZATION, "v1", "subjectaccessreviews", "subjectaccessreview",
         "SubjectAccessReview", namespaced=False, verbs=CREATE_ONLY),
    # stored alone, as Services: the chart has them; patch_legacy_pods names owners of pods
    Kind("apps", "v1", "deployments", "deployment", "Deployment", short_names=("deploy",),
         categories=("all",), subresources=(_status("Deployment"),)),
    Kind("apps", "v1", "statefulsets", "statefulset", "StatefulSet", short_names=("sts",),
         categories=("all",), subresources=(_status("StatefulSet"),)),
    Kind("batch", "v1", "jobs", "job", "Job", categories=("all",), subresources=(_status("Job"),)),
    Kind("coordination.k8s.io", "v1", "leases", "lease", "Lease"),
    # stored alone; the chart looks up the API server's, and there is none
    Kind("discovery.k8s.io", "v1", "endpointslices", "endpointslice", "EndpointSlice"),
    Kind("networking.k8s.io", "v1", "networkpolicies", "networkpolicy", "NetworkPolicy",
         short_names=("netpol",)),
    Kind("policy", "v1", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget",
         short_names=("pdb",), subresources=(_status("PodDisruptionBudget"),)),
    Kind(_RBAC, "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding",
         namespaced=False),
    Kind(_RBAC, "v1", "clusterroles", "clusterrole", "ClusterRole", namespaced=False),
    Kind(_RBAC, "v1", "rolebindings", "rolebinding", "RoleBinding"),
    Kind(_RBAC, "v1", "roles", "role", "Role"),
)
# fmt: on

BY_RESOURCE: Mapping[tuple[str, str, str], Kind] = MappingProxyType(
    {(kind.group, kind.version, kind.plural): kind for kind in KINDS}
)
"""(group, version, plural) -> Kind."""

BY_KIND: Mapping[tuple[str, str], Kind] = MappingProxyType(
    {(kind.api_version, kind.kind): kind for kind in KINDS}
)
"""(apiVersion, kind) -> Kind."""
