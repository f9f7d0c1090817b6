"""The time a pod held its resources, for every possible status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usage.pods.lifetimes import End, lifetime_of
from usage.pods.resources import Pod

T0 = datetime(2026, 10, 1, 12, tzinfo=UTC)
HEARD = T0 + timedelta(hours=3)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, minutes: int, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": text(at(minutes))}


SCHEDULED = condition("PodScheduled", 0)


def ended(minutes: float | None, code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    finished = None if minutes is None else text(at(minutes))
    times = {"startedAt": text(at(1)), "finishedAt": finished}
    return {"state": {"terminated": {"exitCode": code, "reason": reason, **times}}}


RUNNING = {"state": {"running": {"startedAt": text(at(1))}}}
WAITING: dict[str, Any] = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}


def pod(phase: str, *mains: Any, conditions: Any = (SCHEDULED,), **more: Any) -> Pod:
    meta = {"uid": "u", "creationTimestamp": text(at(-1)), **more.pop("metadata", {})}
    status = {"phase": phase, "containerStatuses": [*mains], "conditions": [*conditions], **more}
    return msgspec.convert({"metadata": meta, "status": status}, Pod, strict=False)


def deleting(minutes: int, grace: int = 30) -> dict[str, Any]:
    return {"deletionTimestamp": text(at(minutes)), "deletionGracePeriodSeconds": grace}


@pytest.mark.parametrize(
    ("manifest", "is_deleted", "want_end"),
    [
        pytest.param(pod("Running", RUNNING), False, None, id="a running pod has no end"),
        pytest.param(
            pod("Running", ended(5), RUNNING), False, None, id="one container ended, one runs"
        ),
        pytest.param(
            pod("Succeeded", ended(5), ended(9)),
            False,
            End(at(9), "event"),
            id="the last container's",
        ),
        pytest.param(
            pod("Succeeded", ended(5), initContainerStatuses=[ended(7)]),
            False,
            End(at(7), "event"),
            id="a sidecar that outlives the main container",
        ),
        pytest.param(
            pod("Failed", WAITING, initContainerStatuses=[ended(4, 1)]),
            False,
            End(at(4), "event"),
            id="a failed init container",
        ),
        pytest.param(
            pod("Failed", ended(-5)),
            False,
            End(at(0), "event", skew_seconds=300),
            id="clocks: never before start, and flagged",
        ),
        pytest.param(
            pod("Succeeded", ended(181)),
            False,
            End(HEARD, "event", skew_seconds=60),
            id="clocks: never after it was heard, and flagged",
        ),
        pytest.param(
            pod("Succeeded", ended(180 + 2 / 60)),
            False,
            End(at(180 + 2 / 60), "event"),
            id="clocks: two seconds are what good clocks differ by",
        ),
        pytest.param(
            pod("Failed", reason="Evicted", conditions=(SCHEDULED, condition("Ready", 8, "False"))),
            False,
            End(at(8), "event", True, 300),
            id="an eviction leaves no finishedAt",
        ),
        pytest.param(
            pod(
                "Failed",
                ended(3),
                ended(None),
                conditions=(SCHEDULED, condition("Ready", 20, "False")),
            ),
            False,
            End(at(20), "event", True, 300),
            id="a lost node: one container's end is not known",
        ),
        pytest.param(
            pod("Failed", metadata=deleting(6), conditions=()),
            False,
            End(at(6), "event"),
            id="never scheduled and failed: nothing was held",
        ),
        pytest.param(
            pod("Running", RUNNING, metadata=deleting(10)),
            True,
            End(at(10), "deleted", True, 30),
            id="deleted while running ends at deletionTimestamp",
        ),
        pytest.param(
            pod("Running", ended(5), WAITING, metadata=deleting(10)),
            True,
            End(at(10), "deleted", True, 30),
            id="deleted while a container waits to be restarted: held until then",
        ),
        pytest.param(
            pod("Pending", WAITING, initContainerStatuses=[ended(4)], metadata=deleting(10)),
            True,
            End(at(10), "deleted", True, 30),
            id="deleted before its main container could start: held until then",
        ),
        pytest.param(
            pod("Running", ended(5), initContainerStatuses=[RUNNING], metadata=deleting(10)),
            True,
            End(at(10), "deleted", True, 30),
            id="deleted while a sidecar still ran",
        ),
        pytest.param(
            pod("Failed", ended(None), reason="NodeLost", metadata=deleting(10), conditions=()),
            True,
            End(at(10), "event"),
            id="a lost node's pod that never was scheduled held nothing",
        ),
        pytest.param(
            pod("Running", ended(9), metadata=deleting(10)),
            True,
            End(at(9), "event"),
            id="deleted with finishedAt is exact",
        ),
        pytest.param(
            pod("Running", RUNNING),
            True,
            End(HEARD, "deleted", True, 179 * 60),
            id="deleted without any time ends when it was heard",
        ),
        pytest.param(
            pod("Running", RUNNING, metadata=deleting(180, grace=30)),
            True,
            End(HEARD, "deleted", True, 30),
            id="gone as its grace period ends",
        ),
        pytest.param(
            pod("Running", RUNNING, metadata=deleting(190, grace=3600)),
            True,
            End(HEARD, "deleted", True, 3000),
            id="gone before its grace period is over: not later than it was heard",
        ),
    ],
)
def test_the_end(manifest: Pod, is_deleted: bool, want_end: End | None) -> None:
    assert lifetime_of(manifest, is_deleted=is_deleted, at=HEARD).end == want_end


def test_an_end_after_the_last_condition_is_the_better_guess() -> None:
    not_ready = condition("Ready", 20, "False")
    manifest = pod("Failed", ended(30), ended(None), conditions=(SCHEDULED, not_ready))
    end = lifetime_of(manifest, is_deleted=False, at=HEARD).end
    assert end == End(at(30), "event", True, 300)


def test_uncertainty_is_rounded_up() -> None:
    heard = at(1) + timedelta(milliseconds=1)
    end = lifetime_of(pod("Running", RUNNING), is_deleted=True, at=heard).end
    assert end == End(heard, "deleted", True, 1)


@pytest.mark.parametrize(
    ("conditions", "since", "want_seconds"),
    [
        pytest.param((SCHEDULED,), at(180) - timedelta(seconds=2), 2, id="heard live"),
        pytest.param((SCHEDULED,), None, 179 * 60, id="heard at some time: its container's start"),
        pytest.param((SCHEDULED, condition("Ready", 170)), at(3), 600, id="its last condition"),
        pytest.param((SCHEDULED, condition("Ready", 170)), at(175), 300, id="the later of both"),
        pytest.param((SCHEDULED,), at(181), 0, id="clocks that differ: never negative"),
    ],
)
def test_a_pod_removed_by_force_ended_after_the_last_thing_known(
    conditions: Any, since: datetime | None, want_seconds: int
) -> None:
    manifest = pod("Running", RUNNING, conditions=conditions)
    end = lifetime_of(manifest, is_deleted=True, at=HEARD, since=since).end
    assert end == End(HEARD, "deleted", True, want_seconds)


def test_an_unschedulable_pod_was_never_scheduled() -> None:
    manifest = pod("Pending", conditions=(condition("PodScheduled", 0, "False"),))
    assert lifetime_of(manifest, is_deleted=True, at=HEARD).scheduled_at is None


def test_the_code_and_reason_are_those_of_the_container_that_failed() -> None:
    manifest = pod("Failed", ended(3), ended(4, 137, "OOMKilled"))
    life = lifetime_of(manifest, is_deleted=False, at=HEARD)
    assert (life.exit_code, life.reason, life.started_at) == (137, "OOMKilled", at(1))


def test_a_pod_without_status_is_no_error() -> None:
    bare = Pod(metadata=pod("").metadata)
    life = lifetime_of(bare, is_deleted=False, at=HEARD)
    assert (life.scheduled_at, life.end) == (None, None)


@given(
    st.lists(st.one_of(st.none(), st.integers(-90, 90)), max_size=3),
    st.one_of(st.none(), st.integers(-90, 90)),
    st.sampled_from(["Running", "Failed", "Succeeded"]),
    st.booleans(),
)
def test_an_end_is_never_before_its_start(
    ends: list[int | None], deleted: int | None, phase: str, is_deleted: bool
) -> None:
    meta = {} if deleted is None else deleting(deleted)
    manifest = pod(phase, *(ended(minutes) for minutes in ends), metadata=meta)
    life = lifetime_of(manifest, is_deleted=is_deleted, at=HEARD)
    assert life.scheduled_at == at(0)
    if is_deleted or phase != "Running":
        assert life.end is not None
        assert life.end.at >= at(0)
        assert life.end.uncertainty_seconds >= 0


def test_restarts_change_neither_the_beginning_nor_end_a_pod() -> None:
    again = {"state": {"running": {"startedAt": text(at(40))}}}
    manifest = pod("Running", again, initContainerStatuses=[RUNNING])
    life = lifetime_of(manifest, is_deleted=False, at=HEARD)
    assert (life.scheduled_at, life.end, life.exit_code) == (at(0), None, None)
