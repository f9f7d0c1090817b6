"""domain: the printer columns of the built-in kinds, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from devcluster.printing.podcells import summarise_pod
from ipuhub.text import age

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    Cell = Callable[[Mapping[str, Any], dt.datetime], Any]

NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `cell(object, now)` gives its value; priority 1 is shown by `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def get(obj: Mapping[str, Any], path: str, default: Any = "") -> Any:
    """The value at a dotted path, or `default` where something on the way is missing or null."""
    current: Any = obj
    for part in path.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return default if current is None else current


def field(name: str, path: str, default: Any = "", priority: int = 0) -> Column:
    """A column that shows one field."""
    return Column(name, lambda obj, _now: get(obj, path, default), priority=priority)


def _wide(name: str, path: str, default: Any = NONE) -> Column:
    return field(name, path, default, priority=1)


def _count(*paths: str) -> Cell:
    return lambda obj, _now: sum(len(get(obj, path, ())) for path in paths)


def _node_status(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    ready = [
        "Ready" if item.get("status") == "True" else "NotReady"
        for item in get(obj, "status.conditions", [])
        if item.get("type") == "Ready"
    ]
    words = ready or ["Unknown"]
    return ",".join(words + ["SchedulingDisabled"] * bool(get(obj, "spec.unschedulable", False)))


def _node_roles(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = get(obj, "metadata.labels", {})
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    roles |= {labels["kubernetes.io/role"]} if labels.get("kubernetes.io/role") else set()
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(kind: str) -> Cell:
    def cell(obj: Mapping[str, Any], _now: dt.datetime) -> str:
        addresses = get(obj, "status.addresses", [])
        return next((item["address"] for item in addresses if item.get("type") == kind), NONE)

    return cell


def _claim(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    claim = get(obj, "spec.claimRef", {})
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _access_modes(path: str) -> Cell:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }

    def cell(obj: Mapping[str, Any], _now: dt.datetime) -> str:
        modes = get(obj, path, [])
        return ",".join(name for mode, name in short.items() if mode in modes)

    return cell


def _status_or_terminating(path: str) -> Cell:
    def cell(obj: Mapping[str, Any], _now: dt.datetime) -> str:
        gone = get(obj, "metadata.deletionTimestamp", None)
        return "Terminating" if gone else str(get(obj, path))

    return cell


def _event_object(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_field(*paths: str) -> Cell:
    def cell(obj: Mapping[str, Any], _now: dt.datetime) -> Any:
        return next((value for path in paths if (value := get(obj, path))), "")

    return cell


def _event_source(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = (
        source.get("component")
        or obj.get("reportingComponent")
        or obj.get("reportingController", "")
    )
    host = source.get("host") or obj.get("reportingInstance", "")
    return f"{component}, {host}" if host else str(component)


def _event_age(*paths: str) -> Cell:
    times = (*paths, "eventTime", "metadata.creationTimestamp")
    return lambda obj, now: age(_event_field(*times)(obj, now), now)


def _event_count(obj: Mapping[str, Any], now: dt.datetime) -> int:
    return _event_field("series.count", "count", "deprecatedCount")(obj, now) or 1


def _role_ref(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    return f"{get(obj, 'roleRef.kind')}/{get(obj, 'roleRef.name')}"


def _subjects(kind: str) -> Cell:
    def cell(obj: Mapping[str, Any], _now: dt.datetime) -> str:
        return ", ".join(
            f"{item.get('namespace', '')}/{item['name']}"
            if kind == "ServiceAccount"
            else item["name"]
            for item in obj.get("subjects") or []
            if item.get("kind") == kind
        )

    return cell


def _served_versions(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    versions = (item for item in get(obj, "spec.versions", []) if item.get("served"))
    return ",".join(
        sorted(item["name"] + "(storage)" * bool(item.get("storage")) for item in versions)
    )


def _short_names(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    return ",".join(get(obj, "spec.names.shortNames", []))


def _is_established(obj: Mapping[str, Any], _now: dt.datetime) -> bool:
    return any(
        item.get("type") == "Established" and item.get("status") == "True"
        for item in get(obj, "status.conditions", [])
    )


def _of_replicas(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    return f"{get(obj, 'status.readyReplicas', 0)}/{get(obj, 'spec.replicas', 0)}"


def _pod_ready(obj: Mapping[str, Any], _now: dt.datetime) -> str:
    summary = summarise_pod(obj)
    return f"{summary.ready}/{summary.total}"


NAME = Column("Name", lambda obj, _now: get(obj, "metadata.name"), format="name")
AGE = Column("Age", lambda obj, now: age(get(obj, "metadata.creationTimestamp"), now))
CREATED_AT = Column(
    "Created At", lambda obj, _now: get(obj, "metadata.creationTimestamp", None), "date"
)
_EVENT = (
    Column(
        "Last Seen",
        _event_age("series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp"),
    ),
    field("Type", "type"),
    field("Reason", "reason"),
    Column("Object", _event_object),
    Column(
        "Subobject", _event_field("involvedObject.fieldPath", "regarding.fieldPath"), priority=1
    ),
    Column("Source", _event_source, priority=1),
    Column("Message", _event_field("message", "note")),
    Column("First Seen", _event_age("firstTimestamp", "deprecatedFirstTimestamp"), priority=1),
    Column("Count", _event_count, priority=1),
    Column("Name", lambda obj, _now: get(obj, "metadata.name"), priority=1, format="name"),
)
_BINDING = (
    NAME,
    Column("Role", _role_ref),
    AGE,
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)
_WEBHOOKS = (NAME, Column("Webhooks", _count("webhooks"), "integer"), AGE)
_RBAC = "rbac.authorization.k8s.io"

# fmt: off
COLUMNS: Mapping[str, tuple[Column, ...]] = MappingProxyType({
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", lambda obj, _now: summarise_pod(obj).status),
        Column("Restarts", lambda obj, _now: summarise_pod(obj).restarts, "integer"),
        AGE,
        _wide("IP", "status.podIP"), _wide("Node", "spec.nodeName"),
        _wide("Nominated Node", "status.nominatedNodeName"),
        Column("Readiness Gates", lambda _obj, _now: NONE, priority=1),
    ),
    "nodes": (
        NAME, Column("Status", _node_status), Column("Roles", _node_roles), AGE,
        field("Version", "status.nodeInfo.kubeletVersion"),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        _wide("OS-Image", "status.nodeInfo.osImage", "<unknown>"),
        _wide("Kernel-Version", "status.nodeInfo.kernelVersion", "<unknown>"),
        _wide("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", "<unknown>"),
    ),
    "namespaces": (NAME, field("Status", "status.phase"), AGE),
    "configmaps": (NAME, Column("Data", _count("data", "binaryData")), AGE),
    "secrets": (NAME, field("Type", "type"), Column("Data", _count("data")), AGE),
    "serviceaccounts": (NAME, Column("Secrets", _count("secrets")), AGE),
    "events": _EVENT,
    "persistentvolumes": (
        NAME, field("Capacity", "spec.capacity.storage"),
        Column("Access Modes", _access_modes("spec.accessModes")),
        field("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
        Column("Status", _status_or_terminating("status.phase")),
        Column("Claim", _claim), field("StorageClass", "spec.storageClassName"),
        field("Reason", "status.reason"), AGE,
        _wide("VolumeMode", "spec.volumeMode", "<unset>"),
    ),
    "persistentvolumeclaims": (
        NAME, Column("Status", _status_or_terminating("status.phase")),
        field("Volume", "spec.volumeName"), field("Capacity", "status.capacity.storage"),
        Column("Access Modes", _access_modes("status.accessModes")),
        field("StorageClass", "spec.storageClassName"), AGE,
        _wide("VolumeMode", "spec.volumeMode", "<unset>"),
    ),
    "deployments.apps": (
        NAME, Column("Ready", _of_replicas),
        field("Up-to-date", "status.updatedReplicas", 0),
        field("Available", "status.availableReplicas", 0), AGE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _of_replicas), AGE),
    "jobs.batch": (NAME, field("Active", "status.active", 0), AGE),
    "networkpolicies.networking.k8s.io": (NAME, AGE),
    "endpointslices.discovery.k8s.io": (NAME, field("AddressType", "addressType"), AGE),
    "poddisruptionbudgets.policy": (
        NAME, field("Min Available", "spec.minAvailable", "N/A"),
        field("Max Unavailable", "spec.maxUnavailable", "N/A"), AGE,
    ),
    "leases.coordination.k8s.io": (NAME, field("Holder", "spec.holderIdentity"), AGE),
    f"roles.{_RBAC}": (NAME, CREATED_AT),
    f"clusterroles.{_RBAC}": (NAME, CREATED_AT),
    f"rolebindings.{_RBAC}": _BINDING,
    f"clusterrolebindings.{_RBAC}": _BINDING,
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME, field("Scope", "spec.scope"), Column("Versions", _served_versions), CREATED_AT,
        field("Group", "spec.group", priority=1), field("Kind", "spec.names.kind", priority=1),
        Column("ShortNames", _short_names, priority=1),
        Column("Established", _is_established, "boolean", priority=1),
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
})
# fmt: on
"""Columns by `Kind.resource_name`; every other kind shows its name and creation time."""
