"""Builders and readers for tests of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs.operator.actions import (
    CreateChild,
    EnsurePartition,
    PatchStatus,
)
from jobs.operator.plan import plan
from tests.builders.ipujobs import (
    NOW,
    observed,
    partition,
)

if TYPE_CHECKING:
    from jobs.operator.actions import (
        Plan,
    )
    from jobs.operator.observed import Observed
    from tests.builders.ipujobs import (
        IPUJobBuilder,
    )


def steps(planned: Plan) -> list[str]:
    return [step.name for step in planned.steps]


def created(planned: Plan) -> list[str]:
    return [
        f"{a.kind} {a.manifest['metadata']['name']}"
        for a in planned.actions
        if isinstance(a, CreateChild)
    ]


def requests_in(planned: Plan) -> list[EnsurePartition]:
    return [a for a in planned.actions if isinstance(a, EnsurePartition)]


def status_of(planned: Plan) -> dict[str, Any]:
    (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
    return patch.status


def condition_of(planned: Plan) -> tuple[str, str, str]:
    """Type, reason and message of the condition that becomes True; its other name is left out."""
    true = [c for c in status_of(planned)["conditions"] if c["status"] == "True"]
    (now_true,) = [c for c in true if c["type"] != "Complete"]
    return now_true["type"], now_true["reason"], now_true["message"]


def with_partition(job: IPUJobBuilder, *pods: Any, **more: Any) -> Observed:
    """A job with an active partition and its children."""
    return observed(job.build(), *pods, partitions=(partition(),), with_children=True, **more)


def after_write(job: IPUJobBuilder, *pods: Any) -> Observed:
    """The world after the status of the running job was written."""
    seen = with_partition(job, *pods)
    patch = status_of(plan(seen, NOW))
    stored = {**seen.status(), **patch}
    return replace(seen, job={**(seen.job or {}), "status": stored})
