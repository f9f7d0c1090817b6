"""The number of files to open to follow a decision about a job that comes up."""

from __future__ import annotations

from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, ipujob, observed, partition
from tests.fakes.entered import files_entered


def test_files_entered_by_the_plan_of_a_job_that_comes_up() -> None:
    job = ipujob().workers(4).build()
    ready = observed(job, partitions=(partition(),))
    plan(ready, NOW)
    with files_entered() as seen:
        builds = plan(ready, NOW)
    assert len(builds.actions) > 5
    assert len(seen.calls) <= 15
