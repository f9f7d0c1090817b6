"""domain: the privileges that a job's pods may request from node and namespace, by pod profile.

Webhooks and operator call the same `privilege_excesses`. What the operator adds itself (hostNetwork
and IPC_LOCK, see `jobs.builders.pods`) is not checked: no user wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from jobs.ipujob.fieldpaths import Fields, FieldTree, written
from jobs.ipujob.podstandards import (
    ACCOUNTS,
    ADDED_CAPABILITIES,
    ANNOTATIONS,
    BASELINE,
    LATEST,
    NON_ROOT_USER,
    POD,
    PRIORITIES,
    RESTRICTED,
    SECRETS,
    USER_NAMESPACES,
    VOLUME_TYPES,
    VOLUMES,
    WINDOWS_EXEMPT,
    Standard,
    template_annotations,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobs.ipujob.podstandards import Control

LABEL_POD_PROFILE: Final = "ipuhub.io/pod-profile"
GRAPHCORE: Final = "graphcore"
PROFILES: Final = ("graphcore", "baseline", "restricted", "privileged")
ADDED_CAPABILITY: Final = "IPC_LOCK"
_STANDARDS: Final = {
    "graphcore": Standard.BASELINE,
    "baseline": Standard.BASELINE,
    "restricted": Standard.RESTRICTED,
}
_BY_JOBS: Final = (ACCOUNTS, PRIORITIES)
_TREE: Final = FieldTree.of(
    path
    for control in (*BASELINE, *RESTRICTED, *_BY_JOBS, SECRETS)
    for path, only_where_set in control.judged
    if only_where_set
)


@dataclass(frozen=True, slots=True)
class Privileges:
    """The administrator's choice of pod profiles.

    A profile for all namespaces without their own label, the minor version of the standards, and
    patterns of the Secrets that jobs may use. `host_network`: whether the operator itself puts pods
    on their node's network.
    """

    profile: str = GRAPHCORE
    host_network: bool = True
    version: int = LATEST
    secrets: tuple[str, ...] = ("ipujob-*",)

    def of_namespace(self, label: str | None) -> Privileges:
        """Return the choice for a namespace with this value of LABEL_POD_PROFILE.

        A value that is no profile counts as no label.
        """
        return replace(self, profile=label) if label in PROFILES else self


NOBODYS: Final = Privileges()
"""The default if the administrator has set none."""


@dataclass(frozen=True, slots=True)
class PrivilegeExcess:
    """A field that requests more than the profile allows; `instead` says what to write."""

    field: str
    value: object
    control: str
    instead: str


def privilege_excesses(
    spec: Mapping[str, Any], privileges: Privileges
) -> Iterator[PrivilegeExcess]:
    """Return what an IPUJob's `spec` requests beyond the profile."""
    if privileges.profile not in _STANDARDS:
        return
    job = Fields({"spec": spec}, _TREE)
    yield from _by_standard(job, privileges)
    for control in _BY_JOBS:
        yield from _judged(job, control, privileges)
    yield from _secrets(job, privileges)


def _by_standard(job: Fields, privileges: Privileges) -> Iterator[PrivilegeExcess]:
    found: dict[str, PrivilegeExcess] = {}  # one message about a field, from the weaker standard
    for control in BASELINE:
        for excess in _judged(job, control, privileges):
            found.setdefault(excess.field, excess)
    for control in ANNOTATIONS:
        for prefix in control.fields:
            for path, value in template_annotations(job, prefix):
                if not control.allows(value, privileges.version):
                    found.setdefault(
                        path, PrivilegeExcess(path, value, control.name, control.instead)
                    )
    if _STANDARDS[privileges.profile] is Standard.RESTRICTED:
        for excess in _restricted(job, privileges):
            found.setdefault(excess.field, excess)
    yield from found.values()


def _restricted(job: Fields, privileges: Privileges) -> Iterator[PrivilegeExcess]:
    for control in RESTRICTED:
        yield from _judged(job, control, privileges)
    if _holds(NON_ROOT_USER, job, privileges.version):
        for path, value in _values(job, NON_ROOT_USER):
            if value == 0:
                yield PrivilegeExcess(path, value, NON_ROOT_USER.name, NON_ROOT_USER.instead)
    for path, volume in _values(job, VOLUME_TYPES):
        for kind, source in volume.items() if isinstance(volume, dict) else ():
            if source is not None and kind not in {"name", "hostPath", *VOLUMES}:
                field = f"{path}.{kind}"
                yield PrivilegeExcess(field, source, VOLUME_TYPES.name, VOLUME_TYPES.instead)


def _judged(job: Fields, control: Control, privileges: Privileges) -> Iterator[PrivilegeExcess]:
    version = privileges.version
    if not _holds(control, job, version):
        return
    inherited = job.first(control.inherits) if control.inherits else None
    is_unset_allowed = control.allows(None, version) or control.allows(inherited, version)
    for path, only_where_set in control.judged:
        for place, value in job.set_at(path) if only_where_set else job.at(path):
            if is_unset_allowed if value is None else control.allows(value, version):
                continue
            if not _is_excepted(path, value, privileges):
                yield PrivilegeExcess(written(path, place), value, control.name, control.instead)


def _holds(control: Control, job: Fields, version: int) -> bool:
    if version < control.since:
        return False
    if control.is_lifted_in_user_namespaces and version >= USER_NAMESPACES:
        return job.first(f"{POD}.hostUsers") is not False
    if control.is_for_linux and version >= WINDOWS_EXEMPT:
        return bool(job.first(f"{POD}.os.name") != "windows")
    return True


def _is_excepted(path: str, value: object, privileges: Privileges) -> bool:
    """Return whether the profile graphcore allows this in addition to the baseline standard."""
    if privileges.profile != GRAPHCORE:
        return False
    if path == f"{POD}.hostNetwork":
        return value is True and privileges.host_network
    if path == f"{POD}.hostIPC":
        return value is True
    return value == ADDED_CAPABILITY and path in ADDED_CAPABILITIES


def _secrets(job: Fields, privileges: Privileges) -> Iterator[PrivilegeExcess]:
    patterns = privileges.secrets
    may = f"name a Secret that matches {' or '.join(patterns)}" if patterns else "leave it out"
    for path in SECRETS.fields:
        for place, name in job.set_at(path):
            text = name if isinstance(name, str) else ""
            if any(fnmatchcase(text, pattern) for pattern in patterns):
                continue
            yield PrivilegeExcess(
                written(path, place), name, SECRETS.name, f"{may} (IPUHUB_JOB_SECRETS)"
            )


def _values(job: Fields, control: Control) -> Iterator[tuple[str, object]]:
    for path in control.fields:
        for place, value in job.at(path):
            yield written(path, place), value
