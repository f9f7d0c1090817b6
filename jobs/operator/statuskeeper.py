"""io: what the API server keeps of a status, learnt from the CRD and from each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from jobs.ipujob.manifests import metadata
from jobs.operator.crdcheck import CRD_NAME, REMEDY, CrdVerdict, Keeping, judge_crd
from jobs.operator.keptstatus import carried, has_kept, is_carried, keeps_own, uncarried

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from jobs.ipujob.manifests import Manifest

log = structlog.get_logger(__name__)
NOT_KEPT = (
    "The API server does not keep the status that the operator writes: the job is left as it is; "
    f"{REMEDY}"
)
_CARRYING = CrdVerdict(
    Keeping.CONDITIONS, f"The CRD in this cluster drops fields of status; {REMEDY}"
)


class StatusKeeper:
    """How statuses are to be written so that they are kept.

    The CRD is looked at before the first pass and from time to time; an answer that lacks what
    was written tells at once, and needs no right to read the CRD. `crd` refers to the CRD.
    """

    def __init__(self) -> None:
        self.crd: Manifest = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": CRD_NAME},
        }
        self._verdict = CrdVerdict(Keeping.ALL)
        self.schema = ""  # which CRD was looked at last; empty: none could be
        self._is_known = False  # as long as nothing has told, a status is kept as it is found

    @property
    def problem(self) -> str:
        """Why no job is touched; empty: statuses are kept."""
        return self._verdict.sentence if self._verdict.keeping is Keeping.NOTHING else ""

    @property
    def note(self) -> str:
        """What the CRD drops though jobs run; empty: nothing, or no job is touched."""
        return "" if self.problem else self._verdict.sentence

    async def look(self, client: KubeClient) -> bool:
        """Look at the CRD; whether something has changed. One that cannot be read says nothing."""
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
            return carried(stored, changes, now)
        if is_carried(stored) and not self._is_known:
            return carried(stored, changes, now)
        return uncarried(stored, changes)

    def read_back(self, answer: Manifest, stored: Manifest, written: Manifest) -> bool:
        """Learn from the server's answer to a patch; whether the decision in it was kept."""
        is_kept = has_kept(answer, stored, written)
        keeping = self._verdict.keeping
        if keeping is Keeping.ALL and not is_kept:
            self._turn(_CARRYING)
        elif keeping is Keeping.CONDITIONS and not is_kept:
            self._turn(CrdVerdict(Keeping.NOTHING, NOT_KEPT))
        elif is_kept and keeps_own(answer, written):
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
