"""domain: what the API server refuses in a new Pod beyond its types: demands, volumes, mounts,
ports, probes and where it may run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.scheduling import parse_thousandths
from devcluster.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)
from devcluster.storage.metadata import LABEL_MESSAGE, LABEL_NAME, check_key, check_label_value

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = dict[str, Any]
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_PORT_RULE: Final = "must be between 1 and 65535, inclusive"
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_LARGEST_ID: Final = 2**31 - 1
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_SOURCE_NAMES: Final = {"secret": "secretName"}


def spec_faults(spec: Body) -> Iterator[FieldError]:
    """What is wrong with a pod's spec besides its containers."""
    yield from _volume_faults(spec.get("volumes") or [])
    if spec.get("ephemeralContainers"):
        yield forbidden_field("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("dnsPolicy") not in _DNS:
        yield unsupported("spec.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    host = spec.get("hostname")
    if host and not LABEL_NAME.fullmatch(host):
        yield invalid_value("spec.hostname", host, LABEL_MESSAGE)
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield from check_key("spec.nodeSelector", key)
        yield from check_label_value("spec.nodeSelector", value)
    for number, toleration in enumerate(spec.get("tolerations") or []):
        yield from _toleration_faults(f"spec.tolerations[{number}].operator", toleration)
    yield from _user_faults("spec.securityContext", spec.get("securityContext") or {})


def container_faults(path: str, container: Body, spec: Body) -> Iterator[FieldError]:
    """What is wrong with one container, at `path`, besides its name and image."""
    yield from _demand_faults(f"{path}.resources", container.get("resources") or {})
    yield from _mount_faults(path, container.get("volumeMounts") or [], spec)
    for number, variable in enumerate(container.get("env") or []):
        if variable.get("value") and variable.get("valueFrom"):
            detail = "may not be specified when `value` is not empty"
            yield invalid_value(f"{path}.env[{number}].valueFrom", "", detail)
    host_network = bool(spec.get("hostNetwork"))
    yield from _port_faults(path, container.get("ports") or [], host_network=host_network)
    policies = ("Always", "IfNotPresent", "Never")
    if container.get("imagePullPolicy") not in policies:
        yield unsupported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), policies)
    for name in _PROBES:
        if container.get(name) is not None:
            yield from _probe_faults(f"{path}.{name}", container[name])
    yield from _user_faults(f"{path}.securityContext", container.get("securityContext") or {})


def _demand_faults(path: str, resources: Body) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, demands in (("limits", limits), ("requests", requests)):
        for name, amount in demands.items():
            yield from _amount_faults(f"{path}.{kind}[{name}]", name, amount)
    for name, amount in requests.items():
        limit, may_exceed = limits.get(name), _may_exceed(name)
        if limit is None:
            if not may_exceed:
                detail = "Limit must be set for non overcommitable resources"
                yield required(f"{path}.limits", detail)
            continue
        asked, most = _thousandths(amount), _thousandths(limit)
        if not may_exceed and asked != most:
            detail = f"must be equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", str(amount), detail)
        elif asked > most:
            detail = f"must be less than or equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", str(amount), detail)


def _amount_faults(path: str, name: str, amount: object) -> Iterator[FieldError]:
    if "/" not in name and not (name in _STANDARD or name.startswith("hugepages-")):
        for rule in ("type or fully qualified", "for containers"):
            yield invalid_value(path, name, f"must be a standard resource {rule}")
    if _thousandths(amount) < 0:
        yield invalid_value(path, str(amount), "must be greater than or equal to 0")
    if "/" in name and _thousandths(amount) % 1000:
        yield invalid_value(path, str(amount), "must be an integer")


def _may_exceed(name: str) -> bool:
    """Whether a limit may be above the request: not of what cannot be shared out."""
    return "/" not in name and not name.startswith("hugepages-")


def _thousandths(amount: object) -> int:
    return parse_thousandths(str(amount))


def _mount_faults(path: str, mounts: list[Body], spec: Body) -> Iterator[FieldError]:
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    seen: set[str] = set()
    for number, mount in enumerate(mounts):
        here, target = f"{path}.volumeMounts[{number}]", mount.get("mountPath", "")
        if mount.get("name") not in volumes:
            message = f'Not found: "{mount.get("name")}"'
            yield FieldError(f"{here}.name", "FieldValueNotFound", message)
        if target and target in seen:
            yield invalid_value(f"{here}.mountPath", target, "must be unique")
        seen.add(target)
        if ".." in str(mount.get("subPath") or "").split("/"):
            field = f"{path}.volumeMounts.subPath"  # without its number, as servers write it
            yield invalid_value(field, mount["subPath"], "must not contain '..'")


def _port_faults(path: str, ports: list[Body], *, host_network: bool) -> Iterator[FieldError]:
    names: set[str] = set()
    for number, port in enumerate(ports):
        here = f"{path}.ports[{number}]"
        name, inside, outside = port.get("name"), port.get("containerPort"), port.get("hostPort")
        if name and name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name or "")
        if inside is not None and not 0 < inside < 65536:
            yield invalid_value(f"{here}.containerPort", inside, _PORT_RULE)
        if outside and not 0 < outside < 65536:
            yield invalid_value(f"{here}.hostPort", outside, _PORT_RULE)
        elif host_network and outside and outside != inside:
            detail = "must match `containerPort` when `hostNetwork` is true"
            yield invalid_value(f"{here}.hostPort", outside, detail)
        protocols = ("SCTP", "TCP", "UDP")
        if port.get("protocol") not in protocols:
            yield unsupported(f"{here}.protocol", port.get("protocol"), protocols)


def _probe_faults(path: str, probe: Body) -> Iterator[FieldError]:
    found = [name for name in _HANDLERS if probe.get(name) is not None]
    if not found:
        yield required(path, "must specify a handler type")
    for name in found[1:]:
        yield forbidden_field(f"{path}.{name}", "may not specify more than 1 handler type")


def _user_faults(path: str, context: Body) -> Iterator[FieldError]:
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(name)
        if value is not None and not 0 <= value <= _LARGEST_ID:
            detail = f"must be between 0 and {_LARGEST_ID}, inclusive"
            yield invalid_value(f"{path}.{name}", value, detail)


def _volume_faults(volumes: list[Body]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for number, volume in enumerate(volumes):
        path, name = f"spec.volumes[{number}]", volume.get("name", "")
        if name and not LABEL_NAME.fullmatch(name):
            yield invalid_value(f"{path}.name", name, LABEL_MESSAGE)
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        sources = [kind for kind in volume if kind != "name" and volume[kind] is not None]
        # Servers look at the kinds in an order of their own, with emptyDir and hostPath first.
        sources.sort(key=lambda kind: (kind not in {"emptyDir", "hostPath"}, kind))
        for kind in sources[1:]:
            yield forbidden_field(f"{path}.{kind}", "may not specify more than 1 volume type")
        for kind, field in _SOURCE_NAMES.items():
            if isinstance(volume.get(kind), dict) and not volume[kind].get(field):
                yield required(f"{path}.{kind}.{field}")


def _toleration_faults(path: str, toleration: Body) -> Iterator[FieldError]:
    operator = toleration.get("operator") or "Equal"
    if operator not in {"Equal", "Exists"}:
        yield unsupported(path, operator, ("Equal", "Exists"))
    if operator == "Exists" and toleration.get("value"):
        detail = "value must be empty when `operator` is 'Exists'"
        yield invalid_value(path, toleration["value"], detail)
