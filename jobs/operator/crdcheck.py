"""domain: what the IPUJob CRD that is installed drops of what we write and read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from jobs.ipujob.names import GROUP, VERSION
from jobs.operator.keptstatus import OWN_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.ipujob.manifests import Manifest

CRD_NAME = f"ipujobs.{GROUP}"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
REMEDY = "apply IPUHub's (charts/ipuhub/crds; Helm does not upgrade CRDs)"
# Without these nothing can be kept, not even in a condition.
_NEEDED = (
    "launcherStatus",
    "restartCount",
    "completionTime",
    "conditions.type",
    "conditions.status",
    "conditions.reason",
    "conditions.message",
)
_OWN = (
    *OWN_FIELDS,
    *(f"instances.{name}" for name in ("index", "attempt", "state", "restarts", "losses")),
    "instances.blockedSince",
    *(f"instances.{name}" for name in ("restartAt", "reason", "exitCode", "message", "log")),
    *(f"instances.lastExit.{name}" for name in ("attempt", "at", "reason", "exitCode")),
    *(f"instances.lastExit.{name}" for name in ("message", "log")),
    *(f"partitions.{name}" for name in ("instance", "id", "controller", "state", "message")),
)
_SPEC = (
    "modelReplicas",
    "ipusPerModelReplica",
    "suspend",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "keepPartition",
)


class Keeping(Enum):
    """What becomes of a status that the operator writes."""

    ALL = "all"  # every field is kept
    CONDITIONS = "conditions"  # only the published fields: the rest travels in a condition
    NOTHING = "nothing"  # not even a decision is kept: no job may be touched


@dataclass(frozen=True, slots=True)
class CrdVerdict:
    """How the CRD in the cluster is, and a sentence; empty: it is as it should be."""

    keeping: Keeping
    sentence: str = ""


def judge_crd(crd: Manifest) -> CrdVerdict:
    """Judge the CustomResourceDefinition of IPUJobs by its schema."""
    root = _schema(crd)
    own = [f"status.{path}" for path in OWN_FIELDS if not _has(root, f"status.{path}")]
    nested = [path for path in _OWN if not _has(root, f"status.{path}")]
    needed = [f"status.{path}" for path in _NEEDED if not _has(root, f"status.{path}")]
    spec = [f"spec.{path}" for path in _SPEC if not _has(root, f"spec.{path}")]
    if needed:
        return CrdVerdict(
            Keeping.NOTHING,
            f"The CRD {CRD_NAME} in this cluster drops {', '.join(needed)}: no job can be run; "
            f"{REMEDY}",
        )
    if not nested and not spec:
        return CrdVerdict(Keeping.ALL)
    said = f"The CRD {CRD_NAME} in this cluster is not IPUHub's"
    if nested:
        lost = ", ".join(own) or f"parts of status.{nested[0].split('.')[0]}"
        said += f": it drops {lost}, which are kept in a condition instead"
    if spec:
        said += f"; {', '.join(spec)} have no effect"
    return CrdVerdict(Keeping.CONDITIONS if nested else Keeping.ALL, f"{said}; {REMEDY}")


def _schema(crd: Manifest) -> Mapping[str, Any]:
    spec = crd.get("spec") or {}
    for version in spec.get("versions") or ():
        if version.get("name") == VERSION:
            found = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return found | {PRESERVE: True} if spec.get("preserveUnknownFields") else found
    return {PRESERVE: True}  # what is served is not ours to judge


def _has(schema: Mapping[str, Any], path: str) -> bool:
    """Whether an API server keeps what stands under `path`; lists are looked into."""
    for name in path.split("."):
        here = schema.get("items") if isinstance(schema.get("items"), dict) else schema
        if not isinstance(here, dict) or here.get(PRESERVE):
            return True
        found = (here.get("properties") or {}).get(name) or here.get("additionalProperties")
        if not isinstance(found, dict):
            return found is True
        schema = found
    return True
