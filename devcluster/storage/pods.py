"""domain: defaults and validation of Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.schema import copy_json
from devcluster.schemas.validation import stored_thousandths
from devcluster.status import FieldError, duplicate, invalid_value, required, unsupported
from devcluster.storage.metadata import LABEL_MESSAGE, LABEL_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = dict[str, Any]
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_POLICIES: Final = ("Always", "OnFailure", "Never")

_SPEC_DEFAULTS: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "serviceAccountName": "default",
}
_TOLERATIONS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations")
_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_VOLUME_DEFAULTS: Final[dict[str, Body]] = {
    "configMap": {"defaultMode": 420},
    "secret": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "hostPath": {"type": ""},
}


def default_new_pod(pod: Body) -> None:
    """Give a new Pod the status it begins with."""
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod.get("spec") or {})}


def default_pod(pod: Body) -> None:
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


def check_pod(pod: Body) -> list[FieldError]:
    """Return what is wrong with a new Pod."""
    spec = pod["spec"]
    if not spec.get("containers"):
        return [required("spec.containers")]
    volumes = spec.get("volumes") or []
    errors = [*_volume_faults(volumes)]
    seen: set[str] = set()
    for place in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(place) or []):
            path, name = f"spec.{place}[{number}]", container.get("name", "")
            errors += [required(f"{path}.{n}") for n in ("name", "image") if not container.get(n)]
            if not LABEL_NAME.fullmatch(name or "a"):
                errors.append(invalid_value(f"{path}.name", name, LABEL_MESSAGE))
            if name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
            errors += _demand_faults(f"{path}.resources", container.get("resources") or {})
            known = {volume.get("name") for volume in volumes}
            errors += _mount_faults(path, container.get("volumeMounts") or [], known)
    if spec["restartPolicy"] not in _POLICIES:
        errors.append(unsupported("spec.restartPolicy", spec["restartPolicy"], _POLICIES))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        errors.append(invalid_value("spec.activeDeadlineSeconds", deadline, detail))
    return errors


def check_pod_update(old: Body, new: Body) -> list[FieldError]:
    """Return what an update of a Pod must not have changed."""
    before, after = old["spec"], new["spec"]
    if before == after:
        return []
    errors = _check_deadline(before, after)
    if any(t not in (after.get("tolerations") or []) for t in before.get("tolerations") or []):
        message = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        errors.append(FieldError("spec.tolerations", "FieldValueForbidden", message))
    if _fixed_part(before) != _fixed_part(after):
        errors.append(FieldError("spec", "FieldValueForbidden", f"Forbidden: {_FIXED}"))
    return errors


def _check_deadline(before: Body, after: Body) -> list[FieldError]:
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


def _fixed_part(spec: Body) -> Body:
    fixed: Body = copy_json(spec)
    for name in _MUTABLE:
        fixed.pop(name, None)
    for container in _containers(fixed):
        container.pop("image", None)
    return fixed


def _containers(spec: Body) -> list[Body]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


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
        if str(amount).startswith("-") or str(limit).startswith("-"):
            continue
        requested, most = stored_thousandths(amount), stored_thousandths(limit)
        if not may_exceed and requested != most:
            detail = f"must be equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", str(amount), detail)
        elif requested > most:
            detail = f"must be less than or equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", str(amount), detail)


def _amount_faults(path: str, name: str, amount: Any) -> Iterator[FieldError]:
    if "/" not in name and not (name in _STANDARD or name.startswith("hugepages-")):
        for rule in ("type or fully qualified", "for containers"):
            yield invalid_value(path, name, f"must be a standard resource {rule}")
    if str(amount).startswith("-"):
        yield invalid_value(path, str(amount), "must be greater than or equal to 0")
    elif "/" in name and stored_thousandths(amount) % 1000:
        yield invalid_value(path, str(amount), "must be an integer")


def _may_exceed(name: str) -> bool:
    """Return whether a limit may be above the request: not of what cannot be shared out."""
    return "/" not in name and not name.startswith("hugepages-")


def _mount_faults(path: str, mounts: list[Body], volumes: set[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for number, mount in enumerate(mounts):
        mount_path, target = f"{path}.volumeMounts[{number}]", mount.get("mountPath", "")
        if mount.get("name") not in volumes:
            message = f'Not found: "{mount.get("name")}"'
            yield FieldError(f"{mount_path}.name", "FieldValueNotFound", message)
        if target and target in seen:
            yield invalid_value(f"{mount_path}.mountPath", target, "must be unique")
        seen.add(target)


def _volume_faults(volumes: list[Body]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for number, volume in enumerate(volumes):
        path, name = f"spec.volumes[{number}]", volume.get("name", "")
        if name and not LABEL_NAME.fullmatch(name):
            yield invalid_value(f"{path}.name", name, LABEL_MESSAGE)
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _default_container(container: Body, *, host_network: bool) -> None:
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


def _is_no_execute(toleration: Body) -> bool:
    return toleration.get("effect") in {"NoExecute", "", None}


def _qos_class(spec: Body) -> str:
    demands = [container.get("resources") or {} for container in _containers(spec)]
    if not any(d.get("requests") or d.get("limits") for d in demands):
        return "BestEffort"
    wanted = {"cpu", "memory"}
    for demand in demands:
        limits, requests = demand.get("limits") or {}, demand.get("requests") or {}
        if not wanted <= set(limits) or any(requests.get(n) != limits[n] for n in wanted):
            return "Burstable"
    return "Guaranteed"
