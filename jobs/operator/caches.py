"""io: the operator's local copies of what it watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jobs.ipujob.manifests import is_being_deleted, labels_of, uid_of
from jobs.ipujob.names import LABEL_GROUP, LABEL_JOB_UID
from jobs.ipujob.privileges import LABEL_POD_PROFILE
from jobs.operator.actions import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobs.ipujob.manifests import Manifest

BY_UID = "uid"
BY_JOB = "job"


class Cache(Protocol):
    """The part of `ipuhub.kube.informer.Informer` that passes read."""

    @property
    def resource_version(self) -> str:
        """How far the copy is."""
        ...

    def get(self, namespace: str, name: str) -> Manifest | None:
        """One object."""
        ...

    def by_index(self, index: str, value: str) -> Sequence[Manifest]:
        """The objects under one value of an index."""
        ...

    def all(self) -> Sequence[Manifest]:
        """All objects."""
        ...


@dataclass(frozen=True, slots=True)
class Caches:
    """One cache per kind; `jobs` is indexed by UID, `pods` by the UID of their job."""

    jobs: Cache
    children: Mapping[Kind, Cache]
    namespaces: Cache

    @property
    def pods(self) -> Cache:
        """The pods with the operator's labels."""
        return self.children[Kind.POD]

    def job(self, uid: str) -> Manifest | None:
        """The job with this UID."""
        found = self.jobs.by_index(BY_UID, uid)
        return found[0] if found else None

    def group_of(self, namespace: str) -> str:
        """Who the usage of a namespace is accounted to, by its label; empty: nobody is named."""
        found = self.namespaces.get("", namespace)
        return labels_of(found).get(LABEL_GROUP, "") if found else ""

    def pod_profile(self, namespace: str) -> str | None:
        """The pod profile that a namespace's label chooses; None: it has none."""
        found = self.namespaces.get("", namespace)
        return labels_of(found).get(LABEL_POD_PROFILE) if found else None

    def is_ending(self, namespace: str) -> bool:
        """Whether a namespace is being deleted."""
        found = self.namespaces.get("", namespace)
        return found is not None and is_being_deleted(found)


def by_uid(manifest: Manifest) -> list[str]:
    """Index of jobs."""
    return [uid_of(manifest)]


def by_job(manifest: Manifest) -> list[str]:
    """Index of what belongs to a job."""
    uid = labels_of(manifest).get(LABEL_JOB_UID)
    return [uid] if uid else []


def only_metadata(manifest: Manifest) -> Manifest:
    """Of objects that are only looked for, the contents need no memory."""
    return {key: manifest[key] for key in ("apiVersion", "kind", "metadata") if key in manifest}
