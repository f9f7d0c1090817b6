"""glue: a job as it was applied and as it runs, for its YAML tab."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final

from dashboard.actions.manifests import as_yaml, manifest_of
from jobs.ipujob.conditions import Reason
from jobs.ipujob.spec import with_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.ipujob.names import Manifest
    from jobs.models import JobRecord

VIEWS: Final = ("applied", "running", "diff")


@dataclass(frozen=True, slots=True)
class Manifests:
    """`applied_by`: what applied it (empty: it is the job as first seen). `waits`: the sentence of
    the operator on an edit that is not in effect yet."""

    applied: Manifest
    applied_by: str
    running: Manifest
    waits: str
    difference: Sequence[str]


def manifests_of(job: JobRecord) -> Manifests:
    """Return both forms of a job; of one that an earlier release recorded, out of its spec."""
    plain = manifest_of(job)
    applied: dict[str, Any] = job.applied or plain
    running = {**plain, "spec": job.running or with_defaults(job.spec)}
    # A reason outlives its state, so that an ended job says what it never did.
    waits = job.message if job.reason == Reason.SPEC_CHANGED else ""
    return Manifests(applied, job.applied_by, running, waits, _difference(applied, running))


def _difference(applied: Manifest, running: Manifest) -> list[str]:
    """Return the lines of the specs that differ, with two lines around."""
    old, new = (as_yaml(each.get("spec") or {}).splitlines() for each in (applied, running))
    lines = unified_diff(old, new, lineterm="", n=2)
    return ["…" if line.startswith("@@") else line for line in lines if not _is_head(line)]


def _is_head(line: str) -> bool:
    """Return whether the line names a file, or is the first place, which begins nothing new."""
    return line in {"--- ", "+++ "} or line.startswith("@@ -1,")
