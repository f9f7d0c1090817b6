"""The operator on a real API: jobs run, end, wait, fail and go, with nothing left behind."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ipuhub.kube.errors import Invalid
from ipuhub.kube.resources import EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS
from jobs.ipujob.names import IPUJOBS
from tests.builders.ipujobs import ipujob
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.jobs.conftest import Cluster

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs"
pytestmark = pytest.mark.full_cluster


def annotated(job: Any, **sim: str) -> dict[str, Any]:
    return dict(job.annotated(**{f"sim/{k.replace('_', '-')}": v for k, v in sim.items()}).build())


def example(name: str) -> dict[str, Any]:
    documents = yaml.safe_load_all(Path(f"examples/{name}.yaml").read_text(encoding="utf-8"))
    return next(d for d in documents if d and d["kind"] == "IPUJob")


async def test_a_job_runs_completes_frees_its_ipus_and_goes(cluster: Cluster) -> None:
    # Long enough to be seen Running.
    uid = await cluster.create(annotated(ipujob().workers(2), runtime_seconds="3"))
    await cluster.until_state("sample", "Running")
    assert cluster.partitions.used == 4
    job = await cluster.until_state("sample", "Completed")
    assert job["status"]["lastMessage"] == "All instances done"
    for documented in ("condition=Complete", "jsonpath={.status.completionTime}"):
        await kubectl(cluster, "wait", f"--for={documented}", "ipujob/sample", "--timeout=90s")
    await eventually(lambda: cluster.partitions.used == 0)
    pods = await cluster.pods()
    assert pods["sample-launcher"]["status"]["phase"] == "Succeeded"
    assert len(pods) == 3
    assert {pod["status"]["phase"] for pod in pods.values()} <= {"Succeeded", "Failed"}
    assert cluster.partitions.records[uid, 0].phase == "released"
    await cluster.delete("sample")
    await cluster.until_gone("sample")


@pytest.mark.parametrize(
    ("name", "want_pods"),
    [
        ("single-gcd-sample", ["ipujob-sample-launcher", "ipujob-sample-worker-0"]),
        ("interactive-job", ["interactive-sample-job-launcher", "interactive-sample-job-worker-0"]),
        (
            "training-1x",
            ["training-sample-launcher", "training-sample-worker-0", "training-sample-worker-1"],
        ),
        ("inference-1x", ["inference-sample-worker-0", "inference-sample-worker-1"]),
    ],
)
async def test_the_examples_run_and_go(cluster: Cluster, name: str, want_pods: list[str]) -> None:
    job = example(name)
    await cluster.create(job)
    running = await cluster.until_state(job["metadata"]["name"], "Running")
    assert sorted(await cluster.pods()) == want_pods
    instances = job["spec"].get("jobInstances", 1)
    assert len(running["status"]["partitions"]) == instances
    await cluster.delete(job["metadata"]["name"])
    await cluster.until_gone(job["metadata"]["name"])
    assert cluster.partitions.used == 0


@pytest.mark.embedded_only
async def test_the_nfs_example_is_unschedulable_until_its_claim_is_bound(cluster: Cluster) -> None:
    claim = {
        "metadata": {"name": "nfs-pvc", "annotations": {"sim/unbound": "true"}},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}},
    }
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim, cluster.namespace)
    await cluster.create(example("single-gcd-sample-nfs"))
    message = await cluster.until_reason("ipujob-sample", "Unschedulable")
    assert "sample-worker-0" in message
    assert "unbound immediate PersistentVolumeClaims" in message
    hold = {"metadata": {"annotations": {"sim/unbound": None}}}
    await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "nfs-pvc", hold, cluster.namespace)
    await cluster.until_state("ipujob-sample", "Running")


async def test_a_failed_command_fails_the_job_with_its_exit_code(cluster: Cluster) -> None:
    # Other stand-in nodes end a sleeping worker too, unless a second container keeps it.
    containers = [{"name": name, "image": "app:1"} for name in ("main", "keeper")]
    job = annotated(
        ipujob().with_template(containers=containers), runtime_seconds="0", exit_code="3"
    )
    job["metadata"]["annotations"]["sim/runtime-seconds.keeper"] = "600"
    await cluster.create(job)
    job = await cluster.until_state("sample", "Failed")
    assert "exited with code 3" in job["status"]["lastMessage"]
    assert job["status"]["instances"][0]["exitCode"] == 3
    for documented in ("condition=Failed", "jsonpath={.status.completionTime}"):
        await kubectl(cluster, "wait", f"--for={documented}", "ipujob/sample", "--timeout=90s")


async def test_a_job_waits_for_ipus_and_can_be_deleted_while_it_waits(cluster: Cluster) -> None:
    cluster.partitions.ipus = 2
    await cluster.create(ipujob().build())
    assert "4 IPUs in one block are needed" in await cluster.until_reason("sample", "NoCapacity")
    await cluster.delete("sample")
    await cluster.until_gone("sample")


async def test_a_pod_that_fits_no_node_is_shown(cluster: Cluster) -> None:
    await cluster.create(ipujob().with_template(nodeSelector={"no": "such-node"}).build())
    # the pods are made in one breath: which of them a scheduler tries first is its own affair
    message = await cluster.until_reason("sample", "Unschedulable")
    assert re.match(r"Pod sample-(launcher|worker-0) cannot be scheduled: ", message), message
    await cluster.delete("sample")
    await cluster.until_gone("sample")


async def test_an_invalid_job_says_what_to_write_and_runs_once_fixed(cluster: Cluster) -> None:
    await cluster.create(ipujob().ipus(6).without_finalizer().build())
    assert "use 4 or 8" in await cluster.until_reason("sample", "InvalidSpec")
    fix = {"spec": {"ipusPerJobInstance": "8"}}
    await cluster.client.patch(IPUJOBS, "sample", fix, cluster.namespace)
    await cluster.until_state("sample", "Running")
    assert cluster.partitions.used == 8


@pytest.mark.parametrize("name", ["long-" + "x" * 58, "with.dots"])
async def test_names_up_to_63_characters_and_with_dots_run(cluster: Cluster, name: str) -> None:
    await cluster.create(ipujob(name).build())
    await cluster.until_state(name, "Running")
    await cluster.delete(name)
    await cluster.until_gone(name)


async def test_a_name_of_64_characters_is_an_invalid_spec(cluster: Cluster) -> None:
    name = "x" * 64
    await cluster.create(ipujob(name).build())
    assert "shorten it by 1" in await cluster.until_reason(name, "InvalidSpec")


@pytest.mark.parametrize(
    "spec", [{"cleanPodPolicy": "Some"}, {"jobInstances": "two"}, {"workers": 3}]
)
async def test_the_schema_refuses_what_the_published_one_refuses(
    cluster: Cluster, spec: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        await cluster.create(ipujob().with_spec(**spec).build())


async def test_the_schema_sets_the_defaults_and_keeps_unknown_fields_of_the_template(
    cluster: Cluster,
) -> None:
    job = ipujob().with_template(fieldOfTomorrow={"a": 1})
    await cluster.create(job.build())
    stored = (await cluster.job("sample") or {})["spec"]
    assert stored["cleanPodPolicy"] == "None"
    assert stored["restartPolicy"] == {"type": "Never", "backOffLimit": 3}
    assert stored["workers"]["template"]["spec"]["fieldOfTomorrow"] == {"a": 1}


async def test_everything_that_happens_is_an_event(cluster: Cluster) -> None:
    await cluster.create(annotated(ipujob(), runtime_seconds="1"))
    await cluster.until_state("sample", "Completed")

    async def reasons() -> set[str]:
        found = await cluster.client.list(EVENTS, cluster.namespace)
        pairs = {
            event["reason"] for event in found.items if event["involvedObject"]["kind"] == "IPUJob"
        }
        want = {
            "IPUJobPending",
            "PartitionActive",
            "IPUJobRunning",
            "IPUJobSucceeded",
            "PartitionReleased",
        }
        return pairs if want <= pairs else set()

    assert len(await eventually(reasons)) <= 6


async def test_a_lost_worker_fails_the_job(cluster: Cluster) -> None:
    await cluster.create(ipujob().build())
    await cluster.until_state("sample", "Running")
    await cluster.client.delete(PODS, "sample-worker-0", cluster.namespace)
    await cluster.until_state("sample", "Failed")
    await cluster.until_reason("sample", "WorkerLost")


@pytest.mark.parametrize("moment", [0.0, 0.03, 0.1, 0.3])
async def test_a_job_may_be_deleted_at_any_moment(cluster: Cluster, moment: float) -> None:
    await cluster.create(ipujob().workers(3).build())
    await asyncio.sleep(moment)  # the moment is what the test is about
    await cluster.delete("sample")
    await cluster.until_gone("sample")
    assert cluster.partitions.held() == []


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_every_way_to_delete_frees_the_partition(cluster: Cluster, propagation: Any) -> None:
    await cluster.create(ipujob().build())
    await cluster.until_state("sample", "Running")
    await cluster.client.delete(IPUJOBS, "sample", cluster.namespace, propagation=propagation)
    await cluster.until_gone("sample")
    assert cluster.partitions.held() == []


async def test_an_operator_that_starts_again_goes_on(cluster: Cluster) -> None:
    await cluster.create(ipujob().workers(2).build())
    await cluster.until_state("sample", "Running")
    await cluster.stop_operator()
    await cluster.delete("sample")
    await cluster.create(annotated(ipujob("other"), runtime_seconds="1"))
    await cluster.start_operator()
    await cluster.until_state("other", "Completed")
    await eventually(lambda: cluster.job("sample"), lambda job: job is None)


async def test_a_settled_cluster_is_left_alone(cluster: Cluster) -> None:
    await cluster.create(ipujob().workers(2).build())
    await cluster.until_state("sample", "Running")
    assert cluster.operator is not None
    assert cluster.operator_client is not None
    controller, client = cluster.operator.controller, cluster.operator_client

    def is_at_rest() -> bool:
        return not (len(controller.queue) or controller.queue.active or controller.queue.delayed)

    async def costs_nothing() -> bool:
        """Return whether a pass over all jobs, with its postponed work, calls no server."""
        calls = {k: v for k, v in client.calls.items() if k[0] != "watch"}
        controller.enqueue_all()
        await eventually(is_at_rest)
        return calls == {k: v for k, v in client.calls.items() if k[0] != "watch"}

    await eventually(costs_nothing)  # counts are written with a delay


async def test_an_absent_proxy_is_said_on_readyz_and_waited_for(cluster: Cluster) -> None:
    cluster.partitions.away = True
    await cluster.create(ipujob().build())
    await cluster.until_reason("sample", "ProxyUnavailable")
    await eventually(lambda: cluster.health.checks.get("proxy", (True, ""))[0] is False)
    cluster.partitions.away = False
    await cluster.until_state("sample", "Running")


async def test_describe_shows_what_seed_001_shows(cluster: Cluster) -> None:
    await cluster.create(example("single-gcd-sample"))
    await cluster.until_state("ipujob-sample", "Running")

    async def is_counted() -> bool:  # a stand-in launcher may run before its worker
        job = await cluster.job("ipujob-sample")
        return bool(job and job["status"].get("workersStatus", {}).get("active"))

    await eventually(is_counted)
    description = await kubectl(cluster, "describe", "ipujob", "ipujob-sample")
    description = description.replace(f"{cluster.namespace}/ipujob-sample", "default/ipujob-sample")
    lines = iter(map(normal, description.splitlines()))
    for want in (GOLDEN / "describe.txt").read_text(encoding="utf-8").splitlines():
        assert any(line == normal(want) for line in lines), f"missing or out of order: {want}"


async def test_the_columns_of_get(cluster: Cluster) -> None:
    await cluster.create(ipujob().build())
    await cluster.until_state("sample", "Running")
    head, row = (await kubectl(cluster, "get", "ipujobs")).splitlines()
    assert head.split() == ["NAME", "STATUS", "CURRENT", "DESIRED", "LASTMESSAGE", "AGE"]
    assert row.split()[:4] == ["sample", "Running", "1", "1"]


def normal(line: str) -> str:
    """Alignment depends on the fields around; times differ."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", line)
    return " ".join(text.split())


async def kubectl(cluster: Cluster, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--namespace",
        cluster.namespace,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_a_job_goes_on_as_soon_as_the_proxy_answers_whatever_the_poll(
    cluster: Cluster,
) -> None:
    await cluster.stop_operator()
    cluster.partitions.away = True
    await cluster.start_operator(poll_seconds=3600)
    await cluster.create(ipujob("early").build())
    await cluster.until_reason("early", "ProxyUnavailable")
    cluster.partitions.away = False
    await cluster.until_state("early", "Running")
