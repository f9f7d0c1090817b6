"""Pods of each control of the Pod Security Standards: what it refuses, and what it allows.

The same table is judged by `jobs.ipujob.privileges` and by the PodSecurity admission of a real
server.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Change = Callable[[dict[str, Any]], None]

BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
LOCALHOST: Final = {"type": "Localhost", "localhostProfile": "mine"}
NAMES: Final = {"containers": "main", "initContainers": "init", "ephemeralContainers": "late"}


@dataclass(frozen=True)
class PodCase:
    """A pod spec and its annotations; `refused_by`: the standards of 1.37 that refuse it, for the
    `field`. `is_valid`: a server stores it where no standard is enforced."""

    name: str
    spec: dict[str, Any]
    refused_by: frozenset[str]
    field: str
    annotations: dict[str, str] = field(default_factory=dict)
    is_valid: bool = True


def hardened(kind: str = "containers") -> dict[str, Any]:
    """A pod that the restricted standard takes, with a container of `kind` besides the first."""
    spec: dict[str, Any] = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container("main")],
    }
    if kind != "containers":
        spec[kind] = [_container(NAMES[kind])]
    return spec


def _container(name: str) -> dict[str, Any]:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"name": name, "image": "app:1", "securityContext": security}


def _set(target: dict[str, Any], path: str, value: Any) -> None:
    *way, last = path.split(".")
    for step in way:
        target = target.setdefault(step, {})
    if value is None:
        target.pop(last, None)
    else:
        target[last] = copy.deepcopy(value)


HTTP: Final = {"httpGet": {"port": 80, "host": "10.0.0.1"}}
TCP: Final = {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}
LOCAL: Final = {"httpGet": {"port": 80}}
BOTH: Final = frozenset({BASELINE, RESTRICTED})
STRICT: Final = frozenset({RESTRICTED})
NONE: Final[frozenset[str]] = frozenset()

# path, value, who refuses it, the end of the field's path (empty: the path), a server takes it
Row = tuple[str, Any, frozenset[str], str, bool]
IN_BOTH: Final[list[Row]] = [
    ("securityContext.seccompProfile", {"type": "Unconfined"}, BOTH, ".type", True),
    ("securityContext.seccompProfile", {"type": "RuntimeDefault"}, NONE, "", True),
    ("securityContext.seccompProfile", LOCALHOST, NONE, "", True),
    ("securityContext.appArmorProfile", {"type": "Unconfined"}, BOTH, ".type", True),
    ("securityContext.appArmorProfile", {"type": "RuntimeDefault"}, NONE, "", True),
    ("securityContext.appArmorProfile", LOCALHOST, NONE, "", True),
    ("securityContext.seLinuxOptions", {"type": "spc_t"}, BOTH, ".type", True),
    ("securityContext.seLinuxOptions", {"type": "container_engine_t"}, NONE, "", True),
    ("securityContext.seLinuxOptions", {"type": "container_t", "level": "s0"}, NONE, "", True),
    ("securityContext.seLinuxOptions", {"user": "system_u"}, BOTH, ".user", True),
    ("securityContext.seLinuxOptions", {"role": "system_r"}, BOTH, ".role", True),
    ("securityContext.windowsOptions", {"hostProcess": True}, BOTH, ".hostProcess", False),
    ("securityContext.windowsOptions", {"hostProcess": False}, NONE, "", False),
    ("securityContext.runAsNonRoot", False, STRICT, "", True),
    ("securityContext.runAsUser", 0, STRICT, "", False),
    ("securityContext.runAsUser", 1000, NONE, "", True),
]
IN_CONTAINERS: Final[list[Row]] = [
    *IN_BOTH,
    ("securityContext.privileged", True, BOTH, "", False),
    ("securityContext.privileged", False, NONE, "", True),
    ("securityContext.privileged", "true", BOTH, "", False),
    ("securityContext.procMount", "Unmasked", BOTH, "", False),
    ("securityContext.procMount", "Default", NONE, "", True),
    ("securityContext.capabilities.add", ["SYS_ADMIN"], BOTH, "[0]", True),
    ("securityContext.capabilities.add", ["CHOWN", "ALL"], BOTH, "[1]", True),
    ("securityContext.capabilities.add", ["IPC_LOCK"], BOTH, "[0]", True),
    ("securityContext.capabilities.add", ["CHOWN"], STRICT, "[0]", True),
    ("securityContext.capabilities.add", ["NET_BIND_SERVICE"], NONE, "", True),
    ("securityContext.capabilities", None, STRICT, ".drop", True),
    ("securityContext.capabilities.drop", ["KILL"], STRICT, "", True),
    ("securityContext.allowPrivilegeEscalation", None, STRICT, "", True),
    ("securityContext.allowPrivilegeEscalation", True, STRICT, "", True),
    ("securityContext", None, STRICT, ".allowPrivilegeEscalation", True),
    ("ports", [{"containerPort": 80, "hostPort": 80}], BOTH, "[0].hostPort", True),
    ("ports", [{"containerPort": 80}], NONE, "", True),
    ("lifecycle.preStop", HTTP, BOTH, ".httpGet.host", False),
    ("lifecycle.postStart", TCP, BOTH, ".tcpSocket.host", False),
    ("livenessProbe", HTTP, BOTH, ".httpGet.host", False),
    ("readinessProbe", TCP, BOTH, ".tcpSocket.host", False),
    ("startupProbe", HTTP, BOTH, ".httpGet.host", False),
    ("startupProbe", LOCAL, NONE, "", False),
]
IN_POD: Final[list[Row]] = [
    *IN_BOTH,
    ("securityContext.runAsNonRoot", None, STRICT, "main", True),
    ("securityContext.seccompProfile", None, STRICT, "main", True),
    ("hostNetwork", True, BOTH, "", True),
    ("hostNetwork", False, NONE, "", True),
    ("hostPID", True, BOTH, "", True),
    ("hostIPC", True, BOTH, "", True),
    ("hostIPC", False, NONE, "", True),
    ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}], BOTH, "[0].name", True),
    *(
        ("securityContext.sysctls", [{"name": name, "value": "1"}], NONE, "", True)
        for name in ("kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_rmem")
    ),
]
CLAIM: Final = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
VOLUMES: Final[list[tuple[str, Any, frozenset[str]]]] = [
    ("hostPath", {"path": "/"}, BOTH),
    ("nfs", {"server": "files", "path": "/"}, STRICT),
    ("iscsi", {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0}, STRICT),
    ("fc", {"wwids": ["a"]}, STRICT),
    ("emptyDir", {"medium": "Memory"}, NONE),
    ("configMap", {"name": "a"}, NONE),
    ("downwardAPI", {"items": []}, NONE),
    ("persistentVolumeClaim", {"claimName": "a"}, NONE),
    ("projected", {"sources": []}, NONE),
    ("csi", {"driver": "a.example"}, NONE),
    ("ephemeral", {"volumeClaimTemplate": {"spec": CLAIM}}, NONE),
]
ANNOTATIONS: Final[list[tuple[str, str, frozenset[str], bool]]] = [
    ("container.apparmor.security.beta.kubernetes.io/main", "unconfined", BOTH, True),
    ("container.apparmor.security.beta.kubernetes.io/main", "runtime/default", NONE, True),
    ("container.apparmor.security.beta.kubernetes.io/main", "localhost/mine", NONE, True),
    ("seccomp.security.alpha.kubernetes.io/pod", "unconfined", BOTH, False),
    ("seccomp.security.alpha.kubernetes.io/pod", "runtime/default", NONE, False),
    ("container.seccomp.security.alpha.kubernetes.io/main", "unconfined", BOTH, False),
]


def pod_cases() -> Iterator[PodCase]:
    """All of them."""
    for kind in CONTAINERS:
        for row in IN_CONTAINERS:
            yield _case(row, kind)
    for row in IN_POD:
        yield _case(row, "")
    for kind, source, refused in VOLUMES:
        spec = hardened() | {"volumes": [{"name": "a", kind: source}]}
        yield PodCase(f"volume {kind}", spec, refused, f"volumes[0].{kind}")
    for key, text, refused, valid in ANNOTATIONS:
        found = {key: text}
        yield PodCase(f"{key}={text}", hardened(), refused, f"[{key}]", found, valid)
    yield from _more_cases()


def _case(row: Row, kind: str) -> PodCase:
    path, value, refused, end, valid = row
    spec = hardened(kind or "containers")
    target = spec[kind][-1] if kind else spec
    _set(target, path, value)
    at = f"{kind}[{len(spec[kind]) - 1}].{path}" if kind else path
    if end == "main":
        at, end = f"containers[0].{path}", ".type" if "seccomp" in path else ""
    label = "unset" if value is None else value
    valid = valid and kind != "ephemeralContainers"
    return PodCase(f"{kind or 'pod'} {path} {label}", spec, refused, at + end, is_valid=valid)


def _more_cases() -> Iterator[PodCase]:
    """Yield the cases in which one field lifts what another restricts."""
    apart = hardened() | {"hostUsers": False}
    apart["containers"][0]["securityContext"]["procMount"] = "Unmasked"
    field = "containers[0].securityContext.procMount"
    yield PodCase("procMount in a user namespace", apart, STRICT, field)
    root = hardened() | {"hostUsers": False}
    root["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}
    yield PodCase("root in a user namespace", root, NONE, "")
    root = hardened() | {"hostUsers": True}
    root["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}}
    field = "containers[0].securityContext.runAsNonRoot"
    yield PodCase("root on the host", root, STRICT, field)
    each = hardened("initContainers")
    del each["securityContext"]
    for container in (*each["containers"], *each["initContainers"]):
        own = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        container["securityContext"] |= own
    yield PodCase("each container says it", each, NONE, "")
    windows: dict[str, Any] = {
        "os": {"name": "windows"},
        "containers": [{"name": "main", "image": "app:1"}],
        "securityContext": {"runAsNonRoot": True},
    }
    yield PodCase("windows", windows, NONE, "")
    windows = copy.deepcopy(windows) | {"hostNetwork": True}
    windows["securityContext"] = {
        "windowsOptions": {"hostProcess": True, "runAsUserName": "SYSTEM"}
    }
    yield PodCase("host process", windows, BOTH, "securityContext.windowsOptions.hostProcess")
    sidecar = hardened("initContainers")
    sidecar["initContainers"][0] |= {"restartPolicy": "Always", "startupProbe": HTTP}
    yield PodCase(
        "probe of a sidecar", sidecar, BOTH, "initContainers[0].startupProbe.httpGet.host"
    )
    for name, probe in (("livenessProbe", TCP), ("readinessProbe", HTTP)):
        spec = hardened()
        spec["containers"][0][name] = probe
        (kind,) = probe
        yield PodCase(f"probe {name}", spec, BOTH, f"containers[0].{name}.{kind}.host")
    hook = hardened()
    hook["containers"][0]["lifecycle"] = {"preStop": HTTP}
    yield PodCase("hook", hook, BOTH, "containers[0].lifecycle.preStop.httpGet.host")
