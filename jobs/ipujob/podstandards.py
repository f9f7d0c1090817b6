"""domain: the one table of the fields that the Pod Security Standards restrict in an IPUJob.

Also what a job can reach in its namespace: accounts, priorities, Secrets. Each `Control` names the
fields that it checks and the values that it allows. An unset field is `None`. Checks fail closed: a
value that a control does not list is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobs.ipujob.fieldpaths import Fields

LATEST: Final = 37
"""The minor version of Kubernetes whose standards this table knows last."""

TEMPLATE: Final = "spec.workers.template"
POD: Final = f"{TEMPLATE}.spec"
CONTAINER_KINDS: Final = ("initContainers", "containers", "ephemeralContainers")
USER_NAMESPACES: Final = 35  # from this minor version on, hostUsers: false lifts some controls
WINDOWS_EXEMPT: Final = 25  # from then on, os.name: windows lifts controls of Linux alone


class Standard(IntEnum):
    """The levels of strictness; each includes the controls of those before it."""

    JOBS = 0
    BASELINE = 1
    RESTRICTED = 2


@dataclass(frozen=True, slots=True)
class Control:
    """One control of a standard.

    `allowed` maps each value to the minor version that first allows it; a text also passes when
    it begins with one of `prefixes`, and never when it begins with one of `refused`. With
    `needs_member` the field is a list that must hold that value. A container that does not set
    the field inherits it from `inherits`, a field of the pod. `instead` says what to write.
    """

    name: str
    standard: Standard
    fields: tuple[str, ...]
    instead: str = "leave it out"
    allowed: Mapping[Any, int] = field(default_factory=lambda: {None: 0})
    prefixes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    needs_member: str = ""
    inherits: str = ""
    since: int = 0
    is_lifted_in_user_namespaces: bool = False
    is_for_linux: bool = False
    judged: tuple[tuple[str, bool], ...] = field(init=False)
    """The fields, and whether each is within the standard wherever it is not set."""

    def __post_init__(self) -> None:
        is_unset_allowed = None in self.allowed and not self.needs_member and not self.inherits
        judged = tuple((path, is_unset_allowed or path.endswith("[*]")) for path in self.fields)
        object.__setattr__(self, "judged", judged)

    def allows(self, value: object, version: int) -> bool:
        """Return whether the field may have this value by the standards of a minor version."""
        if self.needs_member:
            return isinstance(value, list) and self.needs_member in value
        if isinstance(value, dict | list):
            return False
        if isinstance(value, str) and self.refused:
            return not value.startswith(self.refused)
        if isinstance(value, str) and self.prefixes and value.startswith(self.prefixes):
            return True
        return self.allowed.get(value, LATEST + 1000) <= version


def template_annotations(job: Fields, prefix: str) -> Iterator[tuple[str, object]]:
    """The annotations of the pod template whose key begins with `prefix`."""
    found = job.first(f"{TEMPLATE}.metadata.annotations")
    for key, value in found.items() if isinstance(found, dict) else ():
        if isinstance(key, str) and key.startswith(prefix):
            yield f"{TEMPLATE}.metadata.annotations[{key}]", value


def _pod(*fields: str) -> tuple[str, ...]:
    return tuple(f"{POD}.{name}" for name in fields)


def _containers(*fields: str) -> tuple[str, ...]:
    return tuple(f"{POD}.{kind}[*].{name}" for kind in CONTAINER_KINDS for name in fields)


def _both(*fields: str) -> tuple[str, ...]:
    names = [f"securityContext.{name}" for name in fields]
    return (*_pod(*names), *_containers(*names))


def _any(*choices: object, **later: int) -> dict[Any, int]:
    return dict.fromkeys(choices, 0) | later


NOT_TRUE: Final = _any(None, False)
NO_TEXT: Final = _any(None, "")
PROFILE_TYPES: Final = _any(None, "RuntimeDefault", "Localhost")
ADDED_CAPABILITIES: Final = _containers("securityContext.capabilities.add[*]")
CAPABILITIES: Final = _any(
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
    *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
SYSCTLS: Final = _any(
    "kernel.shm_rmid_forced",
    *(f"net.ipv4.{name}" for name in ("ip_local_port_range", "ip_unprivileged_port_start")),
    *(f"net.ipv4.{name}" for name in ("tcp_syncookies", "ping_group_range")),
) | {
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
    "net.ipv4.tcp_slow_start_after_idle": 37,
    "net.ipv4.tcp_notsent_lowat": 37,
}
VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    }
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("lifecycle.postStart", "lifecycle.preStop")
_HOSTS = tuple(
    f"{action}.{kind}.host" for action in (*_PROBES, *_HOOKS) for kind in ("httpGet", "tcpSocket")
)
_SECCOMP = "securityContext.seccompProfile.type"
_NON_ROOT = "securityContext.runAsNonRoot"

BASELINE: Final = (
    Control(
        "Host Namespaces",
        Standard.BASELINE,
        _pod("hostNetwork", "hostPID", "hostIPC"),
        allowed=NOT_TRUE,
    ),
    Control(
        "HostProcess",
        Standard.BASELINE,
        _both("windowsOptions.hostProcess"),
        allowed=NOT_TRUE,
    ),
    Control(
        "Privileged Containers",
        Standard.BASELINE,
        _containers("securityContext.privileged"),
        allowed=NOT_TRUE,
    ),
    Control("Capabilities", Standard.BASELINE, ADDED_CAPABILITIES, allowed=CAPABILITIES),
    Control(
        "HostPath Volumes",
        Standard.BASELINE,
        _pod("volumes[*].hostPath"),
        "use a claim, an emptyDir or NFS",
    ),
    Control(
        "Host Ports",
        Standard.BASELINE,
        _containers("ports[*].hostPort"),
        allowed=_any(None, 0),
    ),
    Control(
        "Host Probes / Lifecycle Hooks",
        Standard.BASELINE,
        _containers(*_HOSTS),
        allowed=NO_TEXT,
        since=34,
    ),
    Control("AppArmor", Standard.BASELINE, _both("appArmorProfile.type"), allowed=PROFILE_TYPES),
    Control(
        "SELinux",
        Standard.BASELINE,
        _both("seLinuxOptions.type"),
        allowed=_any(
            *(None, "", "container_t", "container_init_t", "container_kvm_t"),
            container_engine_t=31,
        ),
    ),
    Control(
        "SELinux",
        Standard.BASELINE,
        _both("seLinuxOptions.user", "seLinuxOptions.role"),
        allowed=NO_TEXT,
    ),
    Control(
        "/proc Mount Type",
        Standard.BASELINE,
        _containers("securityContext.procMount"),
        allowed=_any(None, "Default"),
        is_lifted_in_user_namespaces=True,
    ),
    Control(
        "Seccomp",
        Standard.BASELINE,
        _both("seccompProfile.type"),
        allowed=PROFILE_TYPES,
        since=19,
    ),
    Control(
        "Sysctls",
        Standard.BASELINE,
        _pod("securityContext.sysctls[*].name"),
        allowed=SYSCTLS,
    ),
)

ANNOTATIONS: Final = (
    Control(
        "AppArmor",
        Standard.BASELINE,
        ("container.apparmor.security.beta.kubernetes.io/",),
        allowed=_any("", "runtime/default"),
        prefixes=("localhost/",),
    ),
    Control(  # Kubernetes obeys these up to 1.26: refused whatever the version, to be safe
        "Seccomp",
        Standard.BASELINE,
        ("seccomp.security.alpha.kubernetes.io/", "container.seccomp.security.alpha"),
        allowed=_any("runtime/default", "docker/default"),
        prefixes=("localhost/",),
    ),
)
"""Controls of annotations of the pod template; their fields are prefixes of keys."""

RESTRICTED: Final = (
    Control(
        "/proc Mount Type",
        Standard.RESTRICTED,
        _containers("securityContext.procMount"),
        allowed=_any(None, "Default"),
        since=USER_NAMESPACES,
    ),
    Control(
        "Privilege Escalation",
        Standard.RESTRICTED,
        _containers("securityContext.allowPrivilegeEscalation"),
        "write false",
        allowed={False: 0},
        since=8,
        is_for_linux=True,
    ),
    Control(
        "Running as Non-root",
        Standard.RESTRICTED,
        _pod(_NON_ROOT),
        "write true",
        allowed=_any(None, True),
        is_lifted_in_user_namespaces=True,
    ),
    Control(
        "Running as Non-root",
        Standard.RESTRICTED,
        _containers(_NON_ROOT),
        "write true, here or in the securityContext of the pod",
        allowed={True: 0},
        inherits=f"{POD}.{_NON_ROOT}",
        is_lifted_in_user_namespaces=True,
    ),
    Control(
        "Seccomp",
        Standard.RESTRICTED,
        _containers(_SECCOMP),
        "write RuntimeDefault, here or in the securityContext of the pod",
        allowed=_any("RuntimeDefault", "Localhost"),
        inherits=f"{POD}.{_SECCOMP}",
        since=19,
        is_for_linux=True,
    ),
    Control(
        "Capabilities",
        Standard.RESTRICTED,
        _containers("securityContext.capabilities.drop"),
        'write ["ALL"]',
        needs_member="ALL",
        since=22,
        is_for_linux=True,
    ),
    Control(
        "Capabilities",
        Standard.RESTRICTED,
        ADDED_CAPABILITIES,
        allowed=_any("NET_BIND_SERVICE"),
        since=22,
        is_for_linux=True,
    ),
)
"""The restricted standard without its two controls that are more than a list of values: see
`jobs.ipujob.privileges`."""

NON_ROOT_USER: Final = Control(
    "Running as Non-root user",
    Standard.RESTRICTED,
    _both("runAsUser"),
    "write a user id other than 0",
    since=23,
    is_lifted_in_user_namespaces=True,
)
VOLUME_TYPES: Final = Control(
    "Volume Types",
    Standard.RESTRICTED,
    _pod("volumes[*]"),
    "use a claim or an emptyDir",
)

ACCOUNTS: Final = Control(
    "Service Accounts",
    Standard.JOBS,
    _pod("serviceAccountName", "serviceAccount"),
    allowed=_any(None, "", "default"),
)
PRIORITIES: Final = Control(
    "Priority Classes",
    Standard.JOBS,
    _pod("priorityClassName"),
    "leave it out, or name a class that is not the system's",
    refused=("system-",),
)
_SECRET_REFS = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")
_ENV = ("env[*].valueFrom.secretKeyRef.name", "envFrom[*].secretRef.name")
SECRETS: Final = Control(
    "Secrets",
    Standard.JOBS,
    (
        *_containers(*_ENV),
        *(f"spec.launcher.{name}" for name in _ENV),
        *_pod("volumes[*].secret.secretName", "volumes[*].projected.sources[*].secret.name"),
        *_pod("volumes[*].azureFile.secretName", "volumes[*].csi.nodePublishSecretRef.name"),
        *_pod(*(f"volumes[*].{kind}.secretRef.name" for kind in _SECRET_REFS)),
    ),
)
"""Fields with which containers, or mounts of their volumes, read Secrets. A pull secret is seen by
the kubelet alone."""
