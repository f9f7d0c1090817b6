"""Manifests of public user documentation run as they are written."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.storage.patch import json_patch
from ipuhub.kube.resources import PERSISTENT_VOLUME_CLAIMS
from jobs.ipujob.names import IPUJOBS
from jobs.management.commands.run_operator import operator_options
from jobs.management.commands.run_webhooks import webhook_rules
from jobs.operator.plan import plan
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, respond
from tests.builders.ipujobs import NOW, observed
from tests.builders.plans import requests_in
from tests.builders.publishedjobs import CLAIMS, published
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.builders.publishedjobs import Published
    from tests.integration.jobs.conftest import Cluster

JOBS = published()
# One of each shape. Those of the alpha shape are in examples/, which test_cluster.py runs.
SHAPES = ("mnist-simple", "mnist-training", "bert-poprun-64ipus", "resnet-training")
SHAPES += ("bert-training-2", "cosmoflow-training", "deepcam-training")
ADA = {"username": "ada"}


def admitted(job: dict[str, Any]) -> dict[str, Any]:
    """The job after both webhooks, as an API server asks them: a name that begins with
    `generateName` is made up later."""
    for path in (MUTATE_PATH, VALIDATE_PATH):
        request = {"uid": "u-1", "operation": "CREATE", "object": job, "userInfo": ADA}
        answer = respond(path, json.dumps({"request": request}).encode(), webhook_rules())[
            "response"
        ]
        assert answer["allowed"], answer
        if "patch" in answer:
            job = json_patch(job, json.loads(base64.b64decode(answer["patch"])))
    return job


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_both_webhooks_admit_it_and_it_asks_for_the_partition_that_it_names(job: Published) -> None:
    stored = admitted(job.manifest)
    meta = {"name": job.name, "namespace": "default", "uid": f"uid-{job.name}", "generation": 1}
    stored |= {"metadata": stored["metadata"] | meta}
    seen = observed(stored, privileges=operator_options().privileges)
    assert [each.size for each in requests_in(plan(seen, NOW))] == [job.ipus]
    template = stored["spec"]["workers"]["template"]["spec"]
    assert template == job.manifest["spec"]["workers"]["template"]["spec"]


@pytest.fixture
def nodes_offer() -> dict[str, Any]:
    """Nodes that the largest of these pods fit on, beside others."""
    return {"cpu": "192", "memory": "1Ti"}


@pytest.mark.embedded_only
async def test_each_shape_runs(cluster: Cluster) -> None:
    cluster.partitions.ipus = 128
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}}
    for name in CLAIMS:
        body = {"metadata": {"name": name}, "spec": claim}
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, body, cluster.namespace)
    made: dict[str, Published] = {}
    for job in (job for job in JOBS if job.name in SHAPES):
        manifest = admitted(job.manifest)
        manifest |= {"metadata": manifest["metadata"] | {"namespace": cluster.namespace}}
        made[(await cluster.client.create(IPUJOBS, manifest))["metadata"]["name"]] = job
    assert len(made) == len(SHAPES)

    async def states() -> dict[str, str]:
        found = (await cluster.client.list(IPUJOBS, cluster.namespace)).items
        status = {one["metadata"]["name"]: one.get("status") or {} for one in found}
        return {name: str(one.get("launcherStatus")) for name, one in status.items()}

    async def run() -> bool:
        return await states() == dict.fromkeys(made, "Running")

    await eventually(run)
    pods = await cluster.pods()
    assert len(pods) == len(made)
    for name, job in made.items():
        template_spec = job.manifest["spec"]["workers"]["template"]["spec"]
        spec = pods[f"{name}-worker-0"]["spec"]
        assert spec.get("hostIPC") == template_spec.get("hostIPC")
        mounts = spec["containers"][0].get("volumeMounts") or []
        wanted = template_spec["containers"][0].get("volumeMounts") or []
        assert all(mount in mounts for mount in wanted)
    for name in made:
        await cluster.delete(name)
    for name in made:
        await cluster.until_gone(name)
