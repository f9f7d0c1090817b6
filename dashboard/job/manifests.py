"""glue: the applied and the effective manifest of a job, for its YAML tab."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final

from dashboard.actions.manifests import as_yaml, manifest_of
from jobs.ipujob.conditions import waiting_edit
from jobs.ipujob.spec import with_defaults

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest
    from jobs.models import JobRecord

VIEWS: Final = ("applied", "running", "diff")


@dataclass(frozen=True, slots=True)
class Manifests:
    """`applied_by`: what applied it (empty: it is the job as first seen). `waits`: the sentence on
    an edit that is not in effect yet, without a full stop."""

    applied: Manifest
    applied_by: str
    running: Manifest
    waits: str


def manifests_of(job: JobRecord) -> Manifests:
    """Return both forms of a job. A job that only earlier releases recorded has its spec in both,
    with defaults in the running form."""
    plain = manifest_of(job)
    applied: dict[str, Any] = job.applied or plain
    running = {**plain, "spec": job.running or with_defaults(job.spec)}
    # A reason outlives its state, so an ended job can have a reason that no longer applies.
    waits = waiting_edit(job.status, job.reason, job.message).removesuffix(".")
    return Manifests(applied, job.applied_by, running, waits)


def difference_of(manifests: Manifests) -> list[str]:
    """Return the lines of the specs that differ, with two lines around."""
    specs = (manifests.applied.get("spec"), manifests.running.get("spec"))
    old, new = (as_yaml(each or {}).splitlines() for each in specs)
    lines = unified_diff(old, new, lineterm="", n=2)
    return ["…" if line.startswith("@@") else line for line in lines if not _is_head(line)]


def _is_head(line: str) -> bool:
    """Return whether the line names a file, or is the first place, which begins nothing new."""
    return line in {"--- ", "+++ "} or line.startswith("@@ -1,")
