"""domain: names, labels, annotation keys and API paths of everything that belongs to an IPUJob.

Also reads the metadata and times of a manifest (a plain dictionary).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from ipuhub.kube.resources import (
    CONFIG_MAPS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)

GROUP = "graphcore.ai"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "IPUJob"
# The original's name has no path, of which a current API server warns everybody who applies a job.
# Jobs that carry it keep it; new jobs get the qualified name.
FINALIZER = "ipu.graphcore.ai/finalizer"
FIRST_FINALIZER = "ipu.finalizers.graphcore.ai"
FINALIZERS = frozenset({FINALIZER, FIRST_FINALIZER})
LABEL_JOB_NAME = "graphcore.ai/ipujob-name"
LABEL_JOB_UID = "graphcore.ai/ipujob-uid"
LABEL_ROLE = "graphcore.ai/role"
LABEL_INSTANCE = "graphcore.ai/instance"
LABEL_ATTEMPT = "graphcore.ai/attempt"
ROLE_LAUNCHER = "launcher"
ROLE_WORKER = "worker"
ANNOTATION_USAGE = "ipuhub.io/usage"
ANNOTATION_CREATED_BY = "ipuhub.io/created-by"
ANNOTATION_FINGERPRINT = "ipuhub.io/made-of"
# What `kubectl apply` applied: a second copy of the spec.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATION_END = "ipuhub.io/end"  # since when a sleeping pod has nothing more to wait for
LABEL_GROUP = "ipuhub.io/group"
LONGEST_JOB_NAME = 63
LONGEST_LABEL = 63
LONGEST_HOST = 49  # mpirun aborts at host names of 58 characters; below 50 leaves it room
SHORT_HOST = "ipujob-worker-"  # no node's name, as worker-0 is: mpirun would take it for itself


@dataclass(frozen=True, slots=True)
class JobKey:
    """The identity of a job: the UID distinguishes two jobs of the same name."""

    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """`namespace/name`, as messages show a job."""
        return f"{self.namespace}/{self.name}"


def launcher_name(job: str) -> str:
    """The launcher pod; also its ConfigMap, ServiceAccount, Role and RoleBinding."""
    return f"{job}-launcher"


def worker_name(job: str, worker: int) -> str:
    """Worker pod number `worker`, counted over all instances of the job."""
    return f"{job}-worker-{worker}"


def is_worker_name(name: str, job: str) -> bool:
    """Return whether `name` is the name of some worker of the job."""
    number = name.removeprefix(worker_name(job, 0)[:-1])
    return number.isdecimal() and number.isascii() and name == worker_name(job, int(number))


def label_value(text: str) -> str:
    """`text` where it fits a label, else its head and 8 hex digits of its hash."""
    if len(text) <= LONGEST_LABEL:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: LONGEST_LABEL - 9].rstrip('-._')}-{digest}"


def needs_short_hosts(job: str, workers: int) -> bool:
    """Return whether the hostfile needs other names because the pods' are too long for mpirun."""
    return len(worker_name(job, max(workers - 1, 0))) > LONGEST_HOST


def host_names(job: str, workers: int) -> tuple[str, ...]:
    """Return the workers' names in the hostfile, in order."""
    if needs_short_hosts(job, workers):
        return tuple(f"{SHORT_HOST}{n}" for n in range(workers))
    return tuple(worker_name(job, n) for n in range(workers))


def common_labels(key: JobKey) -> dict[str, str]:
    """Labels on every object that belongs to the job."""
    name = label_value(key.name)
    return {
        LABEL_JOB_NAME: name,
        LABEL_JOB_UID: key.uid,
        "app.kubernetes.io/name": "ipujob",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "ipuhub",
    }


def pod_labels(key: JobKey, role: str, instance: int, attempt: int) -> dict[str, str]:
    """Labels on a pod of the job."""
    return common_labels(key) | {
        "app.kubernetes.io/component": role,
        LABEL_ROLE: role,
        LABEL_INSTANCE: str(instance),
        LABEL_ATTEMPT: str(attempt),
    }


class Kind(StrEnum):
    """The kinds of objects that belong to a job."""

    POD = "Pod"
    CONFIG_MAP = "ConfigMap"
    SERVICE_ACCOUNT = "ServiceAccount"
    ROLE = "Role"
    ROLE_BINDING = "RoleBinding"


IPUJOBS = Resource(GROUP, VERSION, "ipujobs", KIND)
RESOURCE_OF: dict[Kind, Resource] = {
    Kind.POD: PODS,
    Kind.CONFIG_MAP: CONFIG_MAPS,
    Kind.SERVICE_ACCOUNT: SERVICE_ACCOUNTS,
    Kind.ROLE: ROLES,
    Kind.ROLE_BINDING: ROLE_BINDINGS,
}


Manifest = dict[str, Any]
"""One Kubernetes object as JSON has it: apiVersion, kind, metadata, spec, status."""


def metadata(manifest: Manifest) -> Manifest:
    """Return the object's metadata; empty if it has none."""
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(manifest: Manifest) -> str:
    """metadata.name."""
    return str(metadata(manifest).get("name", ""))


def namespace_of(manifest: Manifest) -> str:
    """metadata.namespace."""
    return str(metadata(manifest).get("namespace", ""))


def uid_of(manifest: Manifest) -> str:
    """metadata.uid."""
    return str(metadata(manifest).get("uid", ""))


def labels_of(manifest: Manifest) -> dict[str, str]:
    """metadata.labels."""
    return metadata(manifest).get("labels") or {}


def annotations_of(manifest: Manifest) -> dict[str, str]:
    """metadata.annotations."""
    return metadata(manifest).get("annotations") or {}


def is_being_deleted(manifest: Manifest) -> bool:
    """Return whether the deletion of this object was requested."""
    return bool(metadata(manifest).get("deletionTimestamp"))


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_YEARS: Final = range(1970, 9999)


def parse_time(text: object) -> datetime | None:
    """Return an aware instant, or None if it is absent, no text, or invalid, or so far away that
    sums and time zones overflow."""
    if not text or not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.year not in _YEARS:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
