"""domain: what the Python models of the built-in kinds do not say about their fields.

Source: the Kubernetes API reference (patchStrategy and patchMergeKey of each field; the types
Quantity and IntOrString). Keys are (type, field).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MERGE_KEYS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("ObjectMeta", "finalizers"): "",
        ("ObjectMeta", "ownerReferences"): "uid",
        ("PodSpec", "containers"): "name",
        ("PodSpec", "ephemeralContainers"): "name",
        ("PodSpec", "hostAliases"): "ip",
        ("PodSpec", "imagePullSecrets"): "name",
        ("PodSpec", "initContainers"): "name",
        ("PodSpec", "resourceClaims"): "name",
        ("PodSpec", "schedulingGates"): "name",
        ("PodSpec", "topologySpreadConstraints"): "topologyKey",
        ("PodSpec", "volumes"): "name",
        ("PodStatus", "conditions"): "type",
        ("PodStatus", "hostIPs"): "ip",
        ("PodStatus", "podIPs"): "ip",
        ("PodStatus", "resourceClaimStatuses"): "name",
        ("Container", "env"): "name",
        ("Container", "ports"): "containerPort",
        ("Container", "volumeDevices"): "devicePath",
        ("Container", "volumeMounts"): "mountPath",
        ("ContainerStatus", "volumeMounts"): "mountPath",
        ("EphemeralContainer", "env"): "name",
        ("EphemeralContainer", "ports"): "containerPort",
        ("EphemeralContainer", "volumeDevices"): "devicePath",
        ("EphemeralContainer", "volumeMounts"): "mountPath",
        ("NodeSpec", "podCIDRs"): "",
        ("NodeStatus", "addresses"): "type",
        ("NodeStatus", "conditions"): "type",
        ("NamespaceStatus", "conditions"): "type",
        ("PersistentVolumeClaimStatus", "conditions"): "type",
        ("ServiceAccount", "secrets"): "name",
        ("ServiceSpec", "ports"): "port",
        ("ServiceStatus", "conditions"): "type",
        ("DeploymentStatus", "conditions"): "type",
        ("PodDisruptionBudgetStatus", "conditions"): "type",
        ("MutatingWebhookConfiguration", "webhooks"): "name",
        ("ValidatingWebhookConfiguration", "webhooks"): "name",
    }
)
"""Lists that merge, and by which key; empty: a list of texts that merges as a set."""

QUANTITIES: frozenset[tuple[str, str]] = frozenset(
    {
        ("ContainerStatus", "allocatedResources"),
        ("EmptyDirVolumeSource", "sizeLimit"),
        ("LimitRangeItem", "default"),
        ("LimitRangeItem", "defaultRequest"),
        ("LimitRangeItem", "max"),
        ("LimitRangeItem", "maxLimitRequestRatio"),
        ("LimitRangeItem", "min"),
        ("NodeStatus", "allocatable"),
        ("NodeStatus", "capacity"),
        ("PersistentVolumeClaimStatus", "allocatedResources"),
        ("PersistentVolumeClaimStatus", "capacity"),
        ("PersistentVolumeSpec", "capacity"),
        ("PodSpec", "overhead"),
        ("ResourceFieldSelector", "divisor"),
        ("ResourceQuotaSpec", "hard"),
        ("ResourceQuotaStatus", "hard"),
        ("ResourceQuotaStatus", "used"),
        ("ResourceRequirements", "limits"),
        ("ResourceRequirements", "requests"),
        ("VolumeResourceRequirements", "limits"),
        ("VolumeResourceRequirements", "requests"),
    }
)
"""Texts, or maps of texts, that are quantities; a JSON number is accepted too."""

INT_OR_STRING: frozenset[tuple[str, str]] = frozenset(
    {
        ("HTTPGetAction", "port"),
        ("PodDisruptionBudgetSpec", "maxUnavailable"),
        ("PodDisruptionBudgetSpec", "minAvailable"),
        ("RollingUpdateDeployment", "maxSurge"),
        ("RollingUpdateDeployment", "maxUnavailable"),
        ("ServicePort", "targetPort"),
        ("TCPSocketAction", "port"),
    }
)

REPLACED_TYPES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        # The model says "object"; the API takes one schema here (a list is not structural).
        ("JSONSchemaProps", "items"): "JSONSchemaProps",
    }
)
