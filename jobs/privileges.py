"""domain: which of the host's doors a job's pods may open, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_POD: Final = "spec.workers.template.spec"


@dataclass(frozen=True, slots=True)
class Privileges:
    """Who may ask for the host's network, its IPC namespace or privileged containers: jobs in
    `namespaces`, and all where the administrator lets everybody."""

    namespaces: frozenset[str] = frozenset()
    host_network: bool = True
    host_ipc: bool = False
    privileged: bool = False


NOBODYS: Final = Privileges()
"""What holds where the administrator has said nothing."""


def beyond(spec: Mapping[str, Any], namespace: str, privileges: Privileges) -> Iterator[str]:
    """The fields by which `spec` takes more than a job in `namespace` may have."""
    if namespace in privileges.namespaces:
        return
    pod = _mapping(_mapping(_mapping(spec.get("workers")).get("template")).get("spec"))
    everybodys = {"hostNetwork": privileges.host_network, "hostIPC": privileges.host_ipc}
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field) is True and not everybodys.get(field):
            yield f"{_POD}.{field}"
    if privileges.privileged:
        return
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_list(pod.get(kind))):
            context = _mapping(_mapping(container).get("securityContext"))
            if context.get("privileged") is True:
                yield f"{_POD}.{kind}[{index}].securityContext.privileged"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
