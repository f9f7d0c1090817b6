"""Whole passes: rejected, removed and conflicting objects."""

from __future__ import annotations

from typing import Any

import pytest
import structlog.testing

from ipuhub.kube.errors import AlreadyExists, Conflict, Forbidden, ServerError, Unreachable
from jobs.ipujob.names import FINALIZER, launcher_name
from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job
from tests.fakes.jobworld import JobWorld


async def test_what_the_api_server_refuses_is_shown_and_tried_again() -> None:
    world = JobWorld()
    refusal = Forbidden(403, "Forbidden", "exceeded quota: pods")
    world.kube.faults["create", "pods"] = [refusal, refusal]
    world.kube.add_job(ipujob().build())
    await world.passes(3)
    assert world.condition()["reason"] == "QuotaExceeded"
    assert "exceeded quota: pods" in world.condition()["message"]
    await world.until(lambda: world.state() == "Completed")


async def test_a_refusal_that_passes_by_itself_is_not_told() -> None:
    world = JobWorld()
    late = ServerError(500, "ServerTimeout", "no token yet")
    world.kube.faults["create", "pods"] = [late]
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Completed")
    assert "CreateFailed" not in world.events.reasons


async def test_after_a_failed_step_up_the_next_ones_wait() -> None:
    world = JobWorld()
    world.kube.faults["create", "configmaps"] = [ServerError(500, "InternalError", "etcd is away")]
    world.kube.add_job(ipujob().build())
    await world.passes(2)
    assert world.kube.pods() == []
    await world.until(lambda: world.state() == "Completed")


async def test_17c_a_failed_step_down_does_not_stop_the_others() -> None:
    world = await running_job(ipujob().workers(2))
    world.kube.faults["delete", "pods"] = [ServerError(500, "InternalError", "no")]
    world.kube.delete_job("sample")
    await world.passes(1)
    deleting = [p for p in world.kube.pods() if p["metadata"].get("deletionTimestamp")]
    assert len(deleting) == 2
    await world.run(4)
    assert world.kube.objects == {}


async def test_a_job_changed_in_between_is_read_again() -> None:
    world = JobWorld()
    world.kube.faults["patch", "ipujobs"] = [Conflict(409, "Conflict", "modified")] * 3
    world.kube.add_job(ipujob().without_finalizer().build())
    await world.until(lambda: world.state() == "Completed")


async def test_a_partition_is_never_asked_for_without_the_finalizer() -> None:
    world = JobWorld()
    world.kube.faults["patch", "ipujobs"] = [ServerError(500, "InternalError", "no")] * 2
    world.kube.add_job(ipujob().without_finalizer().build())
    await world.passes(2)
    assert "ensure" not in world.partitions.calls
    await world.passes(2)
    assert FINALIZER in (world.kube.job("sample") or {})["metadata"]["finalizers"]


async def test_17b_a_new_job_of_the_same_name_has_nothing_to_do_with_the_old() -> None:
    world = await running_job(ipujob())
    old = world.partitions.held()[0].uid
    world.kube.delete_job("sample")
    await world.run(4, launcher_exit=None)
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    (held,) = world.partitions.held()
    assert held.uid != old
    assert world.partitions.records[old, 0].phase == "released"


async def test_what_a_job_held_is_free_although_another_has_its_name() -> None:
    world = await running_job(ipujob())
    (held,) = world.partitions.held()
    world.kube.objects.pop(("ipujobs", "default", "sample"))
    world.kube.add_job(ipujob().with_spec(suspend=True).build())
    await world.run(6, launcher_exit=None)
    assert world.partitions.records[held.uid, 0].phase == "released"
    assert world.kube.pods() == []


async def test_somebody_elses_pod_under_a_workers_name_is_left_alone() -> None:
    world = JobWorld()
    foreign = {
        "metadata": {
            "name": "sample-worker-0",
            "namespace": "default",
            "labels": {"graphcore.ai/role": "worker"},
        },
        "spec": {"containers": [{"name": "x"}]},
    }
    world.kube.put("pods", foreign)
    world.kube.add_job(ipujob().build())
    world.kube.tick = lambda **_: None  # type: ignore[method-assign]
    for _ in range(3):
        await world.facts.poll(world.now)
        for job in world.controller.effects.caches.jobs.all():
            await world.controller.reconcile(job["metadata"]["uid"])
    assert world.condition()["reason"] == "NameConflict"
    assert "sample-worker-0" in world.condition()["message"]
    assert [
        pod["spec"]
        for pod in world.kube.pods()
        if pod["metadata"]["name"] != launcher_name("sample")
    ] == [foreign["spec"]]


async def test_what_a_job_without_finalizer_leaves_behind_is_freed() -> None:
    world = await running_job(ipujob())
    job = world.kube.job("sample")
    assert job is not None
    job["metadata"]["finalizers"] = []
    world.kube.delete_job("sample")
    await world.run(4)
    assert world.partitions.held() == []
    assert world.kube.objects == {}


async def test_pods_orphaned_by_the_user_go_before_the_partition_is_free() -> None:
    world = await running_job(ipujob().workers(2))
    for manifest in world.kube.objects.values():
        manifest["metadata"].pop("ownerReferences", None)
    world.kube.delete_job("sample")
    await world.run(6, launcher_exit=None)
    assert world.kube.objects == {}


async def test_what_an_orphaning_leaves_is_collected_although_the_job_has_gone() -> None:
    world = await running_job(ipujob())
    for (plural, _, _), manifest in world.kube.objects.items():
        if plural != "pods":
            manifest["metadata"].pop("ownerReferences", None)
    job = world.kube.objects.pop(("ipujobs", "default", "sample"))
    for pod in world.kube.pods():
        world.kube.objects.pop(("pods", "default", pod["metadata"]["name"]))
    await world.partitions.release(job["metadata"]["uid"], 0)
    assert len(world.kube.objects) == 4
    await world.facts.poll(world.now)
    await world.controller.reconcile(job["metadata"]["uid"])
    assert world.kube.objects == {}


async def test_what_is_going_already_is_not_deleted_again() -> None:
    world = await running_job(ipujob())
    job = world.kube.objects.pop(("ipujobs", "default", "sample"))
    for manifest in world.kube.objects.values():
        manifest["metadata"].pop("ownerReferences", None)
    place = ("configmaps", "default", "sample-launcher")
    going = {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["other"]}
    world.kube.objects[place]["metadata"] |= going
    await world.controller.reconcile(job["metadata"]["uid"])
    assert world.kube.calls["delete", "roles"] == 1
    assert world.kube.calls["delete", "configmaps"] == 0


async def test_what_the_garbage_collector_takes_is_left_to_it() -> None:
    world = await running_job(ipujob())
    job = world.kube.objects.pop(("ipujobs", "default", "sample"))
    for pod in world.kube.pods():
        world.kube.objects.pop(("pods", "default", pod["metadata"]["name"]))
    await world.partitions.release(job["metadata"]["uid"], 0)
    await world.facts.poll(world.now)
    before = world.kube.calls.copy()
    assert await world.controller.reconcile(job["metadata"]["uid"]) == "gone"
    assert world.kube.calls == before


@pytest.mark.parametrize("left", ["pods", "configmaps"])
async def test_what_is_left_of_a_job_is_found_although_the_proxy_knows_nothing_of_it(
    left: str,
) -> None:
    world = await running_job(ipujob())
    job = world.kube.objects.pop(("ipujobs", "default", "sample"))
    for plural, namespace, name in list(world.kube.objects):
        if plural != left:
            world.kube.objects.pop((plural, namespace, name))
        elif plural == "configmaps":
            world.kube.objects[plural, namespace, name]["metadata"].pop("ownerReferences")
    world.partitions.records.clear()
    await world.facts.poll(world.now)
    await world.controller.reconcile(job["metadata"]["uid"])
    assert world.kube.calls["delete", left] > 0


async def test_pods_of_a_job_that_has_gone_do_not_wait_for_the_garbage_collector() -> None:
    world = await running_job(ipujob())
    job = world.kube.objects.pop(("ipujobs", "default", "sample"))
    world.partitions.set_phase(job["metadata"]["uid"], 0, "released")
    await world.facts.poll(world.now)
    await world.controller.reconcile(job["metadata"]["uid"])
    assert all(pod["metadata"].get("deletionTimestamp") for pod in world.kube.pods())


async def test_a_late_watch_of_pods_costs_no_running_pod_its_partition() -> None:
    world = await running_job(ipujob())
    pods = world.controller.effects.caches.pods
    pods.by_index = lambda *_: []  # type: ignore[method-assign]
    world.kube.delete_job("sample")
    await world.run(3, launcher_exit=None)
    assert world.partitions.used == 4
    assert world.kube.job("sample") is not None
    del pods.by_index
    await world.run(4, launcher_exit=None)
    assert world.kube.objects == {}
    assert world.partitions.used == 0


async def test_a_late_watch_of_pods_resets_no_partition_under_a_running_pod() -> None:
    world = await running_job(ipujob().with_spec(restartPolicy={"type": "OnFailure"}))
    await world.until(lambda: world.state() == "Restarting", launcher_exit=1)
    pods = world.controller.effects.caches.pods
    pods.by_index = lambda *_: []  # type: ignore[method-assign]
    await world.run(3, launcher_exit=None)
    assert [one.attempt for one in world.partitions.held()] == [0]
    del pods.by_index
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert [one.attempt for one in world.partitions.held()] == [1]


async def test_an_api_server_that_cannot_say_whether_a_job_is_there_takes_nothing_away() -> None:
    world = await running_job(ipujob())
    job = world.kube.job("sample")
    assert job is not None
    job["metadata"]["finalizers"] = []
    world.kube.delete_job("sample")
    world.kube.faults["get", "ipujobs"] = [Unreachable("connection refused")]
    uid = job["metadata"]["uid"]
    await world.controller.reconcile(uid)
    assert world.partitions.used == 4
    assert world.controller.queue.failures(uid) == 1
    await world.run(4)
    assert world.partitions.used == 0


async def test_a_refusal_is_logged_once_and_again_only_when_it_changes() -> None:
    world = JobWorld()
    quota, policy = (
        Forbidden(403, "Forbidden", f"no {subject}") for subject in ("quota", "policy")
    )
    world.kube.faults["create", "pods"] = [quota] * 9 + [policy]
    world.kube.add_job(ipujob().workers(2).build())
    with structlog.testing.capture_logs() as logged:
        await world.run(8)
    causes = [entry["why"] for entry in logged if entry["log_level"] != "debug" and "why" in entry]
    assert causes == ["CreateChild: no quota", "CreateChild: no policy"]


async def test_an_object_that_goes_while_its_name_is_asked_for_is_simply_made_again() -> None:
    world = JobWorld()
    taken = AlreadyExists(409, "AlreadyExists", "exists")
    world.kube.faults["create", "pods"] = [taken]
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Completed")
    assert "CreateFailed" not in world.events.reasons


async def test_a_dead_webhook_is_told_from_the_second_refusal_on_and_passes() -> None:
    world = JobWorld()
    dead = ServerError(500, "InternalError", 'failed calling webhook "m.ipuhub.io": refused')
    world.kube.faults["patch", "ipujobs"] = [dead]
    world.kube.add_job(ipujob().without_finalizer().build())
    await world.passes(1)
    world.kube.faults["patch", "ipujobs"] = [dead]
    await world.passes(1)
    world.kube.faults["patch", "ipujobs"] = [dead]
    await world.passes(1)
    assert world.condition()["reason"] == "WebhookUnavailable"
    assert "WebhookUnavailable" in world.events.reasons
    assert "ensure" not in world.partitions.calls
    await world.until(lambda: world.state() == "Completed")


async def test_a_job_whose_finalizer_a_dead_webhook_holds_up_goes_once_it_is_back() -> None:
    world = await running_job(ipujob())
    world.kube.delete_job("sample")
    patch = world.kube.patch

    async def dead(resource: Any, name: str, body: Any, *rest: Any, **more: Any) -> Any:
        if "finalizers" in body.get("metadata", {}):
            raise ServerError(500, "InternalError", "failed calling webhook: refused")
        return await patch(resource, name, body, *rest, **more)

    world.kube.patch = dead  # type: ignore[method-assign]
    await world.run(10)
    job = world.kube.job("sample")
    assert job is not None
    assert "failed calling webhook" in job["status"]["lastMessage"]
    assert world.events.reasons.count("WebhookUnavailable") == 1
    assert world.partitions.used == 0
    world.kube.patch = patch  # type: ignore[method-assign]
    await world.run(2)
    assert world.kube.objects == {}


async def test_in_a_namespace_that_is_being_deleted_no_call_is_made() -> None:
    world = JobWorld()
    ending = {"metadata": {"name": "default", "deletionTimestamp": "2026-03-01T12:00:00Z"}}
    world.kube.put("namespaces", ending)
    world.kube.add_job(ipujob().build())
    await world.passes(4)
    assert world.condition()["reason"] == "NamespaceTerminating"
    assert world.kube.calls["create", "pods"] == 0
    assert "ensure" not in world.partitions.calls


async def test_a_proxy_that_refuses_is_told_although_each_pass_asks_again() -> None:
    world = JobWorld()
    ensure = world.partitions.ensure

    class RefusedError(Exception):
        retryable = False

    async def refuse(**_: Any) -> Any:
        raise RefusedError("attempt 0 holds 4 IPUs; release them first")

    world.partitions.ensure = refuse  # type: ignore[method-assign]
    world.kube.add_job(ipujob().build())
    await world.passes(3)
    assert world.condition()["reason"] == "PartitionRefused"
    world.partitions.ensure = ensure  # type: ignore[method-assign]
    await world.until(lambda: world.state() == "Completed")
