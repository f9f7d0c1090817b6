"""domain: what the API server fills into a Pod, and what it refuses."""

from __future__ import annotations

import json
from typing import Any, Final

from devcluster.status import FieldError, invalid_value
from devcluster.storage.metadata import LABEL_MESSAGE, LABEL_NAME
from devcluster.storage.podrules import container_faults, spec_faults

_SPEC_DEFAULTS: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "serviceAccountName": "default",
}
_BY_CLASS: Final = ("priority", "priorityClassName", "preemptionPolicy")
_TOLERATIONS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations")
_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_VOLUME_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "configMap": {"defaultMode": 420},
    "secret": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "hostPath": {"type": ""},
}


def default_new_pod(pod: dict[str, Any]) -> None:
    """Give a new Pod the status it begins with."""
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod.get("spec") or {})}


def default_pod(pod: dict[str, Any]) -> None:
    """Fill in the defaults and admission results, as the server does at every write."""
    spec = pod.setdefault("spec", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = account
    for name, value in _SPEC_DEFAULTS.items():
        spec.setdefault(name, value)
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("securityContext", {})
    for container in _containers(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    tolerations = spec.setdefault("tolerations", [])
    for key in _TOLERATIONS:
        if not any(t.get("key") in {key, None, ""} and _is_no_execute(t) for t in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**toleration, "tolerationSeconds": 300})
    for volume in spec.get("volumes") or []:
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}
        for kind, defaults in _VOLUME_DEFAULTS.items():
            if isinstance(volume.get(kind), dict):
                volume[kind] = {**defaults, **volume[kind]}


def check_pod(pod: dict[str, Any]) -> list[FieldError]:
    """Return what is wrong with a new Pod."""
    spec = pod["spec"]
    if not spec.get("containers"):
        return [_required("spec.containers")]
    errors = [*spec_faults(spec)]
    seen: set[str] = set()
    for place in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(place) or []):
            path = f"spec.{place}[{number}]"
            errors += [_required(f"{path}.{n}") for n in ("name", "image") if not container.get(n)]
            if not LABEL_NAME.fullmatch(container.get("name") or "a"):
                errors.append(invalid_value(f"{path}.name", container["name"], LABEL_MESSAGE))
            if container.get("name") in seen:
                message = f'Duplicate value: "{container["name"]}"'
                errors.append(FieldError(f"{path}.name", "FieldValueDuplicate", message))
            seen.add(container.get("name", ""))
            errors += container_faults(path, container, spec)
    if spec["restartPolicy"] not in {"Always", "OnFailure", "Never"}:
        message = (
            f'Unsupported value: "{spec["restartPolicy"]}": '
            'supported values: "Always", "OnFailure", "Never"'
        )
        errors.append(FieldError("spec.restartPolicy", "FieldValueNotSupported", message))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        errors.append(invalid_value("spec.activeDeadlineSeconds", deadline, detail))
    return errors


def check_pod_update(old: dict[str, Any], new: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a Pod must not have changed."""
    before, after = old["spec"], new["spec"]
    for name in _BY_CLASS:  # admission keeps what an update leaves out
        if name in before:
            after.setdefault(name, before[name])
    if before == after:
        return []
    errors = _check_deadline(before, after)
    if any(t not in (after.get("tolerations") or []) for t in before.get("tolerations") or []):
        message = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        errors.append(FieldError("spec.tolerations", "FieldValueForbidden", message))
    if _fixed_part(before) != _fixed_part(after):
        errors.append(FieldError("spec", "FieldValueForbidden", f"Forbidden: {_FIXED}"))
    return errors


def _check_deadline(before: dict[str, Any], after: dict[str, Any]) -> list[FieldError]:
    was, now = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if was is None and now is None:
        return []
    problem = ""
    if now is None:
        problem = "Invalid value: null: must not update from a positive integer to nil value"
    elif now < 1:
        problem = f"Invalid value: {now}: must be between 1 and 2147483647, inclusive"
    elif was is not None and now > was:
        problem = f"Invalid value: {now}: must be less than or equal to previous value"
    field = "spec.activeDeadlineSeconds"
    return [FieldError(field, "FieldValueInvalid", problem)] if problem else []


def _fixed_part(spec: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(json.dumps(spec))
    for name in _MUTABLE:
        kept.pop(name, None)
    for container in _containers(kept):
        container.pop("image", None)
    return kept


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _default_container(container: dict[str, Any], *, host_network: bool) -> None:
    image = container.get("image", "").rpartition("/")[2]
    latest = ":" not in image or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")


def _required(path: str) -> FieldError:
    return FieldError(path, "FieldValueRequired", "Required value")


def _is_no_execute(toleration: dict[str, Any]) -> bool:
    return toleration.get("effect") in {"NoExecute", "", None}


def _qos_class(spec: dict[str, Any]) -> str:
    demands = [container.get("resources") or {} for container in _containers(spec)]
    if not any(d.get("requests") or d.get("limits") for d in demands):
        return "BestEffort"
    wanted = {"cpu", "memory"}
    for demand in demands:
        limits, requests = demand.get("limits") or {}, demand.get("requests") or {}
        if not wanted <= set(limits) or any(requests.get(n) != limits[n] for n in wanted):
            return "Burstable"
    return "Guaranteed"
