"""A later state of a pod changes an earlier state of the same batch."""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from usage.pods.rows import PodRow, merged

T0 = datetime(2026, 10, 1, tzinfo=UTC)


def row(**changes: Any) -> PodRow:
    nothing = ("instance", "attempt", "exit_code", "started_at", "finished_at")
    numbers = ("cpu_millicores", "memory_bytes", "gpus", "micro_ipus")
    empty = {**dict.fromkeys(nothing), **dict.fromkeys(numbers, 0)}
    empty |= {"accelerators": {}, "labels": {}, "stamp": None, "asked_micro_ipus": 0}
    given: dict[str, Any] = dict.fromkeys(PodRow.__struct_fields__, "") | empty
    given |= {"claim": "annotation", "created_at": T0, "scheduled_at": T0}
    return PodRow(
        **given
        | {
            "user_verified": False,
            "estimated": False,
            "uncertainty_seconds": 0,
            "is_known_only": False,
        }
        | changes
    )


def end(minutes: int, source: str = "event", *, estimated: bool = False) -> dict[str, Any]:
    finished = T0 + timedelta(minutes=minutes)
    return {"finished_at": finished, "end_source": source, "estimated": estimated}


def test_an_exact_end_is_final() -> None:
    (found,) = merged([row(**end(1)), row(), row(**end(2)), row(**end(3, estimated=True))])
    assert found == row(**end(1))


def test_an_exact_end_replaces_an_estimated_one_and_no_other_does() -> None:
    estimated = row(**end(1, "deleted", estimated=True))
    assert merged([estimated, row(**end(2, estimated=True))]) == [estimated]
    assert merged([estimated, row(**end(2))]) == [row(**end(2))]


def test_the_first_sight_fixes_who_it_is_but_a_claim_may_follow() -> None:
    (found,) = merged([row(group="a", gpus=1), row(group="b", gpus=2)])
    assert (found.group, found.gpus) == ("a", 1)
    (found,) = merged([row(group="ns", claim="namespace"), row(group="b"), row(group="c")])
    assert (found.group, found.claim) == ("b", "annotation")


def test_a_pod_that_lost_its_annotation_still_ends() -> None:
    lost = row(claim="namespace", is_known_only=True, **end(1))
    (found,) = merged([row(group="a"), lost])
    assert (found.group, found.is_known_only, found.finished_at) == ("a", False, lost.finished_at)
    assert merged([lost, row()]) == [row()]


def test_rows_are_not_changed_by_merging() -> None:
    first, second = row(), row(node="n", **end(1))
    before = copy(first)
    merged([first, second])
    assert first == before
