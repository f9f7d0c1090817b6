"""Jobs for tests of passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.jobworld import JobWorld

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder


async def running_job(job: IPUJobBuilder, **options: Any) -> JobWorld:
    world = JobWorld(**options)
    world.kube.is_fast = True  # counts of workers, which may be written apart, never change alone
    world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    return world
