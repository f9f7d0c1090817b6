"""domain: the fields that an IPUJob has, as paths: what a user writes beside them is no field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TEMPLATE: Final = "spec.workers.template"
_INDEX: Final = re.compile(r"\[[^]]*\]")
_OWN: Final = frozenset(
    """
    metadata.name spec spec.replicas
    spec.activeDeadlineSeconds spec.cleanPodPolicy spec.interactive spec.interactive.ttl
    spec.ipusPerJobInstance spec.ipusPerModelReplica spec.jobInstances spec.keepPartition
    spec.launcher spec.launcher.command spec.launcher.env spec.modelReplicas
    spec.modelReplicasPerWorker spec.restartPolicy spec.restartPolicy.backOffLimit
    spec.restartPolicy.exitCodes spec.restartPolicy.type spec.suspend
    spec.ttlSecondsAfterFinished spec.workers spec.workers.replicas spec.workers.strategy
    spec.workers.template spec.workersPerJobInstance
    """.split()  # noqa: SIM905  # one name a line would fill a page
)


def known_field(path: str, template_schema: Mapping[str, Any]) -> str | None:
    """`path` without the indices of lists; None: an IPUJob, or a Scale, has no such field.

    `template_schema` is the CRD's of a pod template.
    """
    plain = _INDEX.sub("", path)
    if plain in _OWN:
        return plain
    below = plain.removeprefix(f"{TEMPLATE}.")
    return plain if below != plain and _has(template_schema, below.split(".")) else None


def _has(schema: Mapping[str, Any], parts: Iterable[str]) -> bool:
    here = schema
    for part in parts:
        properties = here.get("items", here).get("properties") or {}
        if part not in properties:
            return False
        here = properties[part]
    return True
