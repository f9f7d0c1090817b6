"""Jobs of an API server come to Postgres and stay there, over restarts and gaps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ipuhub.kube.resources import NAMESPACES
from ipuhub.models import WatchCheckpoint, WatchGap
from jobs.ipujob.conditions import JobState, plain_verdict, with_verdict
from jobs.ipujob.names import IPUJOBS, format_time
from jobs.models import JobAttempt, JobRecord, JobTransition
from tests.builders.ipujobs import at, ipujob
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.recorders.conftest import Site


async def enters(
    site: Site, job: dict[str, Any], state: JobState, seconds: float, **fields: Any
) -> dict[str, Any]:
    """Patch the status as the operator does."""
    name = job["metadata"]["name"]
    found = await site.lab.client.get(IPUJOBS, name, job["metadata"]["namespace"])
    status = found.get("status") or {}
    moment, path = format_time(at(seconds)), f"default/{name}"
    conditions = with_verdict(
        list(status.get("conditions") or ()), plain_verdict(state, path), path, moment
    )
    changes = {
        "launcherStatus": state.value,
        "conditions": conditions,
        "startTime": status.get("startTime", moment),
        **fields,
    }
    return await site.patch_status(job, changes)


def status_of(uid: str) -> str:
    return next(iter(JobRecord.objects.filter(uid=uid).values_list("status", flat=True)), "")


def story(uid: str) -> list[tuple[Any, str]]:
    found = JobTransition.objects.filter(job__uid=uid).order_by("at", "id")
    return [(one.at, one.state) for one in found]


def instance(state: str, **more: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "attempt": 0, "state": state} | more]


async def run_to_the_end(site: Site, job: dict[str, Any]) -> None:
    await enters(site, job, JobState.PENDING, 1, instances=instance("Pending"))
    await enters(site, job, JobState.RUNNING, 10, instances=instance("Running"))
    await enters(
        site,
        job,
        JobState.COMPLETED,
        70,
        completionTime=format_time(at(70)),
        instances=instance("Completed", exitCode=0),
    )


WHOLE = [(at(1), "Pending"), (at(10), "Running"), (at(70), "Completed")]


async def test_a_job_is_recorded_and_its_history_stays_after_the_deletion(site: Site) -> None:
    await site.lab.client.patch(
        NAMESPACES, "default", {"metadata": {"labels": {"ipuhub.io/group": "team-a"}}}
    )
    async with site.probing():
        job = await site.make(
            ipujob().annotated(**{"ipuhub.io/created-by": "ada"}).without_finalizer().build()
        )
        uid = job["metadata"]["uid"]
        await eventually(lambda: status_of(uid) == "Pending")
        await run_to_the_end(site, job)
        await eventually(lambda: status_of(uid) == "Completed")
        await site.lab.client.delete(IPUJOBS, "sample", "default")
        await eventually(lambda: JobRecord.objects.filter(deleted_at__isnull=False).exists())
    kept = JobRecord.objects.get()
    assert (kept.uid, kept.name, kept.ipus, kept.workers) == (uid, "sample", 4, 1)
    assert (kept.group, kept.user, kept.user_verified) == ("team-a", "ada", False)
    assert (kept.started_at, kept.completed_at) == (at(10), at(70))
    assert not kept.estimated
    assert kept.cluster_uid
    assert story(uid) == WHOLE
    attempt = JobAttempt.objects.get()
    assert (attempt.began_at, attempt.ended_at, attempt.exit_code) == (at(1), at(70), 0)


async def test_the_deletion_of_a_job_with_a_finalizer_has_the_time_of_the_request(
    site: Site,
) -> None:
    async with site.probing():
        await site.make(ipujob().build())
        await eventually(JobRecord.objects.exists)
        await site.lab.client.delete(IPUJOBS, "sample", "default")
        job = await site.lab.client.get(IPUJOBS, "sample", "default")
        stamp = datetime.fromisoformat(job["metadata"]["deletionTimestamp"])
        assert JobRecord.objects.get().deleted_at is None
        await site.lab.client.patch(
            IPUJOBS, "sample", {"metadata": {"finalizers": None}}, "default"
        )
        await eventually(lambda: JobRecord.objects.filter(deleted_at=stamp).exists())


async def test_what_happens_while_the_prober_is_away_is_recorded_when_it_is_back(
    site: Site,
) -> None:
    async with site.probing():
        job = await site.make(ipujob().without_finalizer().build())
        await eventually(JobRecord.objects.exists)
    await run_to_the_end(site, job)
    await site.lab.client.delete(IPUJOBS, "sample", "default")
    uid = job["metadata"]["uid"]
    async with site.probing():
        await eventually(lambda: JobRecord.objects.filter(deleted_at__isnull=False).exists())
    assert story(uid) == WHOLE
    assert not JobRecord.objects.get().estimated
    assert not WatchGap.objects.filter(watch="ipujobs").exists()


async def test_a_job_that_went_beyond_the_watchs_reach_ends_at_the_last_sighting(
    site: Site,
) -> None:
    async with site.probing():
        for name in ("stays", "goes", "ends"):
            await site.make(ipujob(name).without_finalizer().build())
        await eventually(lambda: JobRecord.objects.count() == 3)
    seen_until = WatchCheckpoint.objects.get(name="ipujobs").position_at
    await site.lab.client.delete(IPUJOBS, "goes", "default")
    ended = await site.lab.client.get(IPUJOBS, "ends", "default")
    await run_to_the_end(site, ended)
    WatchCheckpoint.objects.update(selection="something else")  # so that a list is needed
    async with site.probing():
        await eventually(lambda: JobRecord.objects.filter(deleted_at__isnull=False).exists())
    gone = JobRecord.objects.get(name="goes")
    assert (gone.deleted_at, gone.estimated) == (max(seen_until, gone.created_at), True)
    assert JobRecord.objects.filter(deleted_at=None).count() == 2
    assert story(ended["metadata"]["uid"]) == WHOLE
    assert WatchGap.objects.filter(watch="ipujobs").exists()


async def test_a_job_with_an_invalid_spec_has_its_page_too(site: Site) -> None:
    async with site.probing():
        await site.make(ipujob("odd").with_spec(modelReplicas="many", workers=None).build())
        await site.make(ipujob("good").build())
        await eventually(lambda: JobRecord.objects.count() == 2)
    odd = JobRecord.objects.get(name="odd")
    assert (odd.ipus, odd.spec["modelReplicas"]) == (0, "many")
    assert odd.created_at <= datetime.now(UTC)
