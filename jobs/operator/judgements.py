"""io: what was said of each job's spec, so that not every pass judges it anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.ipujob.validation import problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.ipujob.names import JobKey
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.sessionlimits import SessionLimits
    from jobs.ipujob.validation import Problem


@dataclass(frozen=True, slots=True)
class _Judgement:
    spec: object
    limits: SessionLimits
    privileges: Privileges
    found: tuple[Problem, ...]


class Judgements:
    """The problems of a spec, remembered by the job's UID as long as nothing that they depend on
    has changed: a job is looked at about ten times on its way to Running, and judging it would be
    a third of each plan."""

    def __init__(self) -> None:
        self._known: dict[str, _Judgement] = {}

    def of(
        self, key: JobKey, job: Mapping[str, object], limits: SessionLimits, privileges: Privileges
    ) -> tuple[Problem, ...]:
        """What is wrong with the job's spec."""
        spec, known = job.get("spec"), self._known.get(key.uid)
        if (
            known is not None
            and known.spec == spec
            and (known.limits, known.privileges) == (limits, privileges)
        ):
            return known.found
        found = problems(key.name, spec, limits, namespace=key.namespace, privileges=privileges)
        self._known[key.uid] = _Judgement(spec, limits, privileges, tuple(found))
        return tuple(found)

    def forget(self, uid: str) -> None:
        """The job has gone."""
        self._known.pop(uid, None)
