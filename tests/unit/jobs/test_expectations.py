"""Own writes must be seen before the next plan."""

from __future__ import annotations

from typing import Any

from jobs.operator.effects import TIMEOUT_SECONDS, Expectations


class Copy:
    """A cache of one pod."""

    def __init__(self) -> None:
        self.resource_version = "1"
        self.pod: dict[str, Any] | None = None

    def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        assert (namespace, name) == ("default", "pod")
        return self.pod


def pod(version: int) -> dict[str, Any]:
    meta = {"namespace": "default", "name": "pod", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": meta}


def waiting(copy: Any) -> Expectations:
    """We have written the pod's version 5."""
    made = Expectations(lambda: 0.0)
    made.written("key", copy, pod(5))
    return made


def test_a_copy_that_shows_the_write_or_a_later_one_will_do() -> None:
    copy = Copy()
    made = waiting(copy)
    assert made.seconds_left("key") == TIMEOUT_SECONDS
    copy.pod = pod(6)
    assert made.seconds_left("key") == 0


def test_a_copy_that_is_past_the_write_has_seen_the_object_go() -> None:
    copy = Copy()
    made = waiting(copy)
    copy.resource_version = "7"
    assert made.seconds_left("key") == 0


def test_what_is_made_is_waited_for_until_it_has_been_seen_to_come_or_go() -> None:
    copy = Copy()
    made = Expectations(lambda: 0.0)
    made.written("key", copy, pod(5), is_new=True)  # type: ignore[arg-type]
    copy.resource_version = "7"
    assert made.seconds_left("key") == TIMEOUT_SECONDS
    made.gone("key", "another")
    assert made.seconds_left("key") == TIMEOUT_SECONDS
    made.gone("key", "u")
    assert made.seconds_left("key") == 0


def test_what_has_gone_before_its_creation_was_answered_is_not_waited_for() -> None:
    copy = Copy()
    made = Expectations(lambda: 0.0)
    made.gone("key", "u")
    made.written("key", copy, pod(5), is_new=True)  # type: ignore[arg-type]
    assert made.seconds_left("key") == 0


def test_an_object_at_an_older_version_shows_that_an_event_was_lost() -> None:
    copy = Copy()
    made = waiting(copy)
    copy.pod, copy.resource_version = pod(3), "7"
    assert made.seconds_left("key") == TIMEOUT_SECONDS


def test_no_write_is_waited_for_without_end() -> None:
    now = 0.0
    made = Expectations(lambda: now)
    made.written("key", Copy(), pod(5))  # type: ignore[arg-type]
    now = TIMEOUT_SECONDS
    assert made.seconds_left("key") == 0
