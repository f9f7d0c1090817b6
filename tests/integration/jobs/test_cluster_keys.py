"""Keys of jobs on a secure V-IPU: in a Secret that goes with the job, and nowhere else."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from ipuhub.kube.errors import Forbidden
from ipuhub.kube.resources import EVENTS, SECRETS
from jobs.ipujob.names import LABEL_JOB_UID
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from typing import Any

    from tests.integration.jobs.conftest import Cluster


async def secrets_of(cluster: Cluster, uid: str) -> list[dict[str, Any]]:
    selector = f"{LABEL_JOB_UID}={uid}"
    found = await cluster.client.list(SECRETS, cluster.namespace, label_selector=selector)
    return found.items


@pytest.mark.full_cluster
async def test_a_jobs_key_is_in_its_secret_only_and_goes_with_it(cluster: Cluster) -> None:
    cluster.partitions.is_secure = True
    uid = await cluster.create(ipujob().workers(2).build())
    await cluster.until_state("sample", "Running")
    (secret,) = await secrets_of(cluster, uid)
    (key,) = cluster.partitions.valid_keys.values()
    stored = base64.b64decode(secret["data"]["access-key"]).decode()
    assert (secret["metadata"]["name"], stored) == (f"vipu-sample-{key.id}", key.access_key)
    pods = await cluster.pods()
    assert len(pods) == 3
    for pod in pods.values():
        env = {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}
        chosen = env["VIPU_CLI_API_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]
        assert chosen == {"name": secret["metadata"]["name"], "key": "access-key"}
    events = (await cluster.client.list(EVENTS, cluster.namespace)).items
    seen = json.dumps([await cluster.job("sample"), pods, events])
    assert key.access_key not in seen
    await cluster.delete("sample")
    await cluster.until_gone("sample")

    async def is_gone() -> bool:
        return not await secrets_of(cluster, uid)

    await eventually(is_gone)
    assert cluster.partitions.valid_keys == {}


async def test_without_the_right_to_create_secrets_the_job_waits_and_says_so() -> None:
    world = JobWorld()
    world.partitions.is_secure = True
    refusal = Forbidden(403, "Forbidden", 'secrets is forbidden: cannot create resource "secrets"')
    world.kube.faults["create", "secrets"] = [refusal] * 3
    world.kube.add_job(ipujob().build())
    await world.passes(3)
    message = world.condition("sample")["message"]
    assert "Cannot create the Secret with the key to the job's partition" in message
    assert "cannot create resource" in message
    assert world.kube.pods() == []
    await world.until(lambda: world.state("sample") == "Running", launcher_exit=None)


async def test_a_proxy_that_makes_no_key_for_a_while_holds_the_job_up_and_no_longer() -> None:
    world = JobWorld()
    world.partitions.is_secure = True
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.partitions.keys > 0, launcher_exit=None)
    world.partitions.away = True
    await world.passes(3)
    assert world.state("sample") == "Pending" or world.kube.pods()
    world.partitions.away = False
    await world.until(lambda: world.state("sample") == "Running", launcher_exit=None)
