"""Pods on stand-in nodes, through an API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from devcluster.kubelet.options import Durations
from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import NODES, PODS
from tests.devcluster.integration.kubelet.conftest import NAMESPACE, TRAPPED
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.devcluster.integration.kubelet.conftest import Cluster


def main_of(pod: Any) -> Any:
    return pod["status"]["containerStatuses"][0]


def ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def test_a_pod_goes_through_its_whole_life(cluster: Cluster) -> None:
    seen: list[str] = []

    def note(_old: Any, new: Any) -> None:
        if new is not None and new["metadata"]["name"] == cluster.name("job"):
            seen.append(new["status"].get("phase", ""))

    pods = Informer(cluster.client, PODS, namespace=NAMESPACE)
    pods.add_handler(note)
    watching = asyncio.create_task(pods.run())
    await cluster.start()
    inits = [{"name": "prepare", "image": "prepare:1"}]
    await cluster.create_pod("job", sim={"runtime-seconds": "1"}, initContainers=inits)
    pod = await cluster.until_phase("job", "Succeeded")
    await eventually(lambda: asyncio.sleep(0, seen), lambda phases: "Succeeded" in phases)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert list(dict.fromkeys(seen)) == ["Pending", "Running", "Succeeded"]
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert main_of(pod)["state"]["terminated"]["reason"] == "Completed"
    assert pod["status"]["qosClass"] == "BestEffort"
    truths = {one["type"]: one["status"] for one in pod["status"]["conditions"]}
    assert truths["PodScheduled"] == truths["Initialized"] == "True"
    assert truths["Ready"] == truths["ContainersReady"] == "False"


async def test_pods_of_a_node_have_addresses_of_their_own(cluster: Cluster) -> None:
    await cluster.start(nodes=1)
    for number in range(5):
        await cluster.create_pod(f"p{number}", command=TRAPPED)
    pods = [await cluster.until_phase(f"p{number}", "Running") for number in range(5)]
    assert len({pod["status"]["podIP"] for pod in pods}) == 5
    assert {pod["status"]["hostIP"] for pod in pods} == {"10.64.0.1"}


async def test_a_deleted_sleeping_worker_ends_at_once_with_code_0(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create_pod("worker", command=TRAPPED)
    await cluster.until_phase("worker", "Running")
    last: list[Any] = []
    pods = Informer(cluster.client, PODS, namespace=NAMESPACE)
    pods.add_handler(lambda old, new: last.append(old) if new is None else None)
    watching = asyncio.create_task(pods.run())
    await pods.wait_synced(10)
    await cluster.delete_pod("worker")
    await cluster.until_gone("worker", seconds=10)  # the grace period would be 30 s
    name = cluster.name("worker")
    gone = await eventually(
        lambda: asyncio.sleep(0, [one for one in last if one["metadata"]["name"] == name]), bool
    )
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert main_of(gone[0])["state"]["terminated"]["exitCode"] == 0
    assert gone[0]["status"]["phase"] == "Succeeded"


async def test_a_container_that_does_not_stop_is_killed_at_the_end_of_the_grace(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.create_pod("stubborn", sim={"stop-seconds": "60"})
    await cluster.until_phase("stubborn", "Running")
    await cluster.patch_pod("stubborn", {"metadata": {"finalizers": ["test.ipuhub.io/hold"]}})
    await cluster.delete_pod("stubborn", grace=1)
    pod = await cluster.until_phase("stubborn", "Failed")
    assert main_of(pod)["state"]["terminated"]["exitCode"] == 137
    await cluster.patch_pod("stubborn", {"metadata": {"finalizers": None}})
    await cluster.until_gone("stubborn")


async def test_a_deadline_set_on_a_running_worker_fails_it_and_keeps_it(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create_pod("worker", command=TRAPPED)
    await cluster.until_phase("worker", "Running")
    await cluster.patch_pod("worker", {"spec": {"activeDeadlineSeconds": 1}})
    pod = await cluster.until_phase("worker", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert main_of(pod)["state"]["terminated"]["exitCode"] == 0


async def test_a_launcher_begins_when_all_its_workers_are_ready(cluster: Cluster) -> None:
    await cluster.start()

    def labels(role: str, attempt: str = "0") -> dict[str, str]:
        return {
            "graphcore.ai/ipujob-uid": cluster.suffix,
            "graphcore.ai/role": role,
            "graphcore.ai/instance": "0",
            "graphcore.ai/attempt": attempt,
        }

    wait = {
        "name": "ipuhub-launcher",
        "image": "localhost/ipuhub-launcher:dev",
        "env": [{"name": "IPUHUB_WORKERS", "value": "2"}],
    }
    await cluster.create_pod(
        "launcher",
        labels=labels("launcher"),
        initContainers=[wait],
        sim={"runtime-seconds": "1"},
    )
    await cluster.create_pod("w0", labels=labels("worker"), command=TRAPPED)
    await cluster.create_pod("old", labels=labels("worker", "7"), command=TRAPPED)
    await cluster.pod_until("w0", ready)
    await cluster.pod_until("old", ready)
    pod = await cluster.pod_until("launcher", lambda one: "initContainerStatuses" in one["status"])
    assert pod["status"]["phase"] == "Pending", "one of two workers is not enough"
    await cluster.create_pod("w1", labels=labels("worker"), command=TRAPPED)
    await cluster.until_phase("launcher", "Succeeded")


async def test_a_failed_pull_is_shown_with_an_event(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create_pod("nopull", sim={"image-pull-error": "true"})
    pod = await cluster.pod_until(
        "nopull",
        lambda one: (
            (one["status"].get("containerStatuses") or [{}])[0]
            .get("state", {})
            .get("waiting", {})
            .get("reason")
            == "ImagePullBackOff"
        ),
    )
    assert pod["status"]["phase"] == "Pending"
    await cluster.patch_pod("nopull", {"metadata": {"annotations": {"sim/image-pull-error": None}}})
    await cluster.until_phase("nopull", "Running")


async def test_a_pod_that_crashes_is_restarted_and_counted(cluster: Cluster) -> None:
    await cluster.start(durations=Durations(backoff=0.2))
    sim = {"runtime-seconds": "0.2", "exit-code": "1,2,0"}
    await cluster.create_pod("crash", sim=sim, restartPolicy="OnFailure")
    pod = await cluster.until_phase("crash", "Succeeded")
    assert main_of(pod)["restartCount"] == 2
    assert main_of(pod)["lastState"]["terminated"]["exitCode"] == 2


async def test_a_restarted_process_goes_on_and_picks_up_new_pods(cluster: Cluster) -> None:
    options = await cluster.start(nodes=1)
    node = options.node_names()[0]
    await cluster.create_pod("before", sim={"runtime-seconds": "3"})
    await cluster.create_pod("deleted", command=TRAPPED)
    before = await cluster.until_phase("before", "Running")
    await cluster.until_phase("deleted", "Running")
    await cluster.stop()
    await cluster.delete_pod("deleted")
    await cluster.create_pod("bound", sim={"runtime-seconds": "0"}, nodeName=node)
    await cluster.start(nodes=1)
    await cluster.until_phase("bound", "Succeeded")
    await cluster.until_gone("deleted")
    after = await cluster.until_phase("before", "Succeeded")
    ended = main_of(after)["state"]["terminated"]
    assert ended["startedAt"] == main_of(before)["state"]["running"]["startedAt"]
    assert main_of(after)["restartCount"] == 0
    assert after["status"]["podIP"] == before["status"]["podIP"]


async def test_nothing_is_written_while_nothing_changes(cluster: Cluster) -> None:
    await cluster.start(nodes=1)
    for number in range(3):
        await cluster.create_pod(f"p{number}", command=TRAPPED)
        await cluster.pod_until(f"p{number}", ready)
    writes = ("patch", PODS.plural), ("create", PODS.plural), ("patch", NODES.plural)
    before = [cluster.client.calls[write] for write in writes]
    await cluster.patch_pod("p0", {"metadata": {"labels": {"looked": "at"}}})
    await cluster.create_pod("later", command=TRAPPED)
    await cluster.pod_until("later", ready)
    after = [cluster.client.calls[write] for write in writes]
    # Ours: the label and the new pod; theirs: its binding, and creating and running.
    assert [b - a for a, b in zip(before, after, strict=True)] == [3, 2, 0]
