"""The pods that the operator creates for a job, built without any operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.builders.launcher import build_launcher
from jobs.builders.pods import BuildContext, PodOptions, PodPlace, build_worker
from jobs.ipujob.spec import parse_spec
from jobs.operator.effectivespec import fingerprint_of
from tests.builders.ipujobs import key_of, partition

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder

PLACE = PodPlace(0, 0, partition())


def context_of(job: IPUJobBuilder, group: str = "", **options: Any) -> BuildContext:
    """Return the builders' input for a job, with the operator's settings `options`."""
    built = job.build()
    spec = parse_spec(built["spec"])
    stamp = fingerprint_of(spec).to_text()
    return BuildContext(key_of(built), built, spec, group, PodOptions(**options), stamp)


def worker_of(job: IPUJobBuilder, number: int = 0, **options: Any) -> dict[str, Any]:
    """One worker pod of a job."""
    return build_worker(context_of(job, **options), PLACE, number)


def launcher_of(job: IPUJobBuilder, **options: Any) -> dict[str, Any]:
    """The launcher pod of a job."""
    return build_launcher(context_of(job, **options), PLACE)


def env_of(container: dict[str, Any]) -> dict[str, str]:
    """The variables of a container that have plain values."""
    return {v["name"]: v["value"] for v in container["env"]}
