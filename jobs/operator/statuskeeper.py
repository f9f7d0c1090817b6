"""io: the status fields that the API server keeps, learned from the installed CRD and from its
responses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import structlog

from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from jobs.ipujob.fields import FIELDS
from jobs.ipujob.names import GROUP, VERSION, metadata
from jobs.ipujob.statusfields import status_paths
from jobs.ipujob.storedstatus import OWN_FIELDS
from jobs.operator.statuscarrier import (
    DECIDED,
    has_carrier,
    has_stored_decisions,
    has_stored_own_fields,
    with_carrier,
    without_carrier,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipuhub.kube.client import KubeClient
    from jobs.ipujob.names import Manifest

CRD_NAME = f"ipujobs.{GROUP}"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
REMEDY = "apply IPUHub's CRD (charts/ipuhub/files)"
# Without these nothing can be kept, not even in a condition.
_NEEDED = (*DECIDED, *(f"conditions.{name}" for name in ("type", "status", "reason", "message")))


class Keeping(Enum):
    """The part of a written status that the API server keeps."""

    ALL = "all"  # every field is kept
    CONDITIONS = "conditions"  # only the published fields: the rest travels in a condition
    NOTHING = "nothing"  # not even a decision is kept: no job may be touched


@dataclass(frozen=True, slots=True)
class CrdVerdict:
    """The judgement on the CRD in the cluster, and a sentence; empty: it is as it should be."""

    keeping: Keeping
    sentence: str = ""


def judge_crd(crd: Manifest) -> CrdVerdict:
    """Judge the CustomResourceDefinition of IPUJobs by its schema."""
    root = _schema(crd)
    own = [f"status.{path}" for path in OWN_FIELDS if not _has(root, f"status.{path}")]
    nested = [path for path in status_paths(OWN_FIELDS) if not _has(root, f"status.{path}")]
    needed = [f"status.{path}" for path in _NEEDED if not _has(root, f"status.{path}")]
    spec = [f"spec.{name}" for name in FIELDS.not_published if not _has(root, f"spec.{name}")]
    if needed:
        return CrdVerdict(
            Keeping.NOTHING,
            f"The CRD {CRD_NAME} in this cluster drops {', '.join(needed)}: no job can run; "
            f"{REMEDY}",
        )
    if not nested and not spec:
        return CrdVerdict(Keeping.ALL)
    problem = f"The CRD {CRD_NAME} in this cluster is not IPUHub's"
    if nested:
        lost = ", ".join(own) or f"parts of status.{nested[0].split('.')[0]}"
        problem += f": it drops {lost}, which the operator stores in a condition instead"
    if spec:
        problem += f"; {', '.join(spec)} have no effect"
    return CrdVerdict(Keeping.CONDITIONS if nested else Keeping.ALL, f"{problem}; {REMEDY}")


def _schema(crd: Manifest) -> Mapping[str, Any]:
    spec = crd.get("spec") or {}
    for version in spec.get("versions") or ():
        if version.get("name") == VERSION:
            found = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return found | {PRESERVE: True} if spec.get("preserveUnknownFields") else found
    return {PRESERVE: True}  # the served schema is unknown


def _has(schema: Mapping[str, Any], path: str) -> bool:
    """Return whether an API server keeps the value under `path`, also inside lists."""
    for name in path.split("."):
        node = schema.get("items") if isinstance(schema.get("items"), dict) else schema
        if not isinstance(node, dict) or node.get(PRESERVE):
            return True
        found = (node.get("properties") or {}).get(name) or node.get("additionalProperties")
        if not isinstance(found, dict):
            return found is True
        schema = found
    return True


log = structlog.get_logger(__name__)
NOT_KEPT = (
    "The API server does not keep the status that the operator writes, so the operator does not "
    f"touch the job; {REMEDY}"
)
_CARRYING = CrdVerdict(
    Keeping.CONDITIONS, f"The CRD in this cluster drops fields of status; {REMEDY}"
)


class StatusKeeper:
    """The form in which statuses are written so that the API server keeps them.

    The CRD is looked at before the first pass and from time to time; an answer without a written
    field shows it immediately, without the right to read the CRD. `crd` refers to the CRD.
    """

    def __init__(self) -> None:
        self.crd: Manifest = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": CRD_NAME},
        }
        self._verdict = CrdVerdict(Keeping.ALL)
        self.schema = ""  # which CRD was looked at last; empty: none could be
        self._is_known = False  # until it is known, a status is kept as found

    @property
    def problem(self) -> str:
        """Return why the operator touches no job; empty: statuses are kept."""
        return self._verdict.sentence if self._verdict.keeping is Keeping.NOTHING else ""

    @property
    def note(self) -> str:
        """Return what the CRD drops although jobs run; empty: nothing, or no job is affected."""
        return "" if self.problem else self._verdict.sentence

    async def look(self, client: KubeClient) -> bool:
        """Read the CRD; return whether something changed. An unreadable CRD changes nothing."""
        try:
            crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME)
        except ApiError:
            if self._verdict.keeping is not Keeping.NOTHING:
                return False
            return self._turn(_CARRYING)  # one more try: another CRD may be there by now
        self._is_known = True
        meta = metadata(crd)
        self.schema = f"{meta.get('uid')} {meta.get('generation')}"
        self.crd["metadata"]["uid"] = meta.get("uid", "")
        return self._turn(judge_crd(crd))

    def to_write(self, stored: Manifest, changes: Manifest, now: str) -> Manifest:
        """The patch that keeps `changes` of the whole status `stored`."""
        if self._verdict.keeping is not Keeping.ALL:
            return with_carrier(stored, changes, now)
        if has_carrier(stored) and not self._is_known:
            return with_carrier(stored, changes, now)
        return without_carrier(stored, changes)

    def read_back(self, answer: Manifest, stored: Manifest, written: Manifest) -> bool:
        """Learn from the server's answer to a patch; whether the decision in it was kept."""
        is_kept = has_stored_decisions(answer, stored, written)
        keeping = self._verdict.keeping
        if keeping is Keeping.ALL and not is_kept:
            self._turn(_CARRYING)
        elif keeping is Keeping.CONDITIONS and not is_kept:
            self._turn(CrdVerdict(Keeping.NOTHING, NOT_KEPT))
        elif is_kept and has_stored_own_fields(answer, written):
            self._is_known = True
            self._turn(self._verdict if keeping is Keeping.ALL else CrdVerdict(Keeping.ALL))
        return is_kept

    def _turn(self, verdict: CrdVerdict) -> bool:
        if verdict == self._verdict:
            return False
        self._verdict = verdict
        if verdict.sentence:
            log.warning("the CRD of IPUJobs", says=verdict.sentence)
        else:
            log.info("the CRD of IPUJobs keeps every field")
        return True
