"""The operator's API writes for a job, counted on a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.resources import EVENTS
from jobs.ipujob.names import FINALIZER
from tests.builders.ipujobs import ipujob
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder
    from tests.integration.jobs.conftest import Cluster

pytestmark = pytest.mark.full_cluster
WRITES = {"create", "patch", "replace", "delete"}
STATUS_FIELDS = {"launcherStatus", "conditions", "instances", "observedGeneration"}


class Statuses:
    """The status patches of a cluster's operator: `urgent` patches, and patches of counts alone."""

    def __init__(self, cluster: Cluster) -> None:
        self.urgent: list[dict[str, Any]] = []
        self.counts = 0
        client: Any = cluster.operator_client
        patch = client.patch

        async def watched(*args: Any, **options: Any) -> Any:
            if options.get("subresource") == "status":
                status = args[2]["status"]
                if STATUS_FIELDS & status.keys():
                    self.urgent.append(status)
                else:
                    self.counts += 1
            return await patch(*args, **options)

        client.patch = watched


def written(cluster: Cluster, statuses: Statuses) -> int:
    """Writes so far; Events and counts apart."""
    assert cluster.operator_client is not None
    calls = cluster.operator_client.calls.items()
    found = sum(n for (verb, plural), n in calls if verb in WRITES and plural != "events")
    return found - statuses.counts


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (ipujob().workers(1), 7 + 1),
        (ipujob().workers(3), 7 + 3),
        (ipujob().without_finalizer().workers(3), 8 + 3),
        (ipujob().without_launcher().workers(1), 2 + 1),
        (ipujob().without_launcher().workers(3), 2 + 3),
        (ipujob().without_launcher().without_finalizer().workers(3), 3 + 3),
    ],
)
async def test_a_job_runs_after_so_many_writes_and_no_more(
    cluster: Cluster, job: IPUJobBuilder, want: int
) -> None:
    """The finalizer is the webhook's write, and the operator's only where that is missing: one of
    its own, since no API server takes metadata and status in one request."""
    statuses = Statuses(cluster)
    has_finalizer = FINALIZER in (job.build()["metadata"].get("finalizers") or ())
    await cluster.create(job.annotated(**{"sim/runtime-seconds": "60"}).build())
    await cluster.until_state("sample", "Running")
    # The launcher's access may come after.
    await eventually(lambda: written(cluster, statuses) >= want)
    assert cluster.operator_client is not None
    counts = (has_finalizer, dict(cluster.operator_client.calls), statuses.urgent, statuses.counts)
    assert written(cluster, statuses) == want, counts


async def test_a_whole_life_takes_at_most_four_status_patches_and_six_events(
    cluster: Cluster,
) -> None:
    statuses = Statuses(cluster)
    await cluster.create(ipujob().annotated(**{"sim/runtime-seconds": "1"}).build())
    await cluster.until_state("sample", "Completed")
    await eventually(lambda: cluster.partitions.used == 0)

    async def has_release_event() -> bool:
        events = (await cluster.client.list(EVENTS, cluster.namespace)).items
        reasons = [e["reason"] for e in events if e["involvedObject"]["kind"] == "IPUJob"]
        return "PartitionReleased" in reasons and len(reasons) <= 6

    await eventually(has_release_event)
    assert len(statuses.urgent) <= 4
