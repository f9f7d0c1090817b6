"""Drift, the numbers of /stats and /query, and records as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.partition import Phase, Reason, partition_from_json, partition_to_json
from partitions.proxy import tombstones
from partitions.proxy.capacity import query, stats
from partitions.proxy.controllers import (
    ControllerSpec,
    ControllerView,
    PartitionSettings,
)
from partitions.proxy.drift import Drift, compare, scope_of_settings
from partitions.proxy.lifecycle import Request, Shortage, partition_of, waiting_partition
from partitions.vipu.topology import IpuId
from partitions.vipu.types import ReadyState, VipuPartition
from tests.builders import trackerentries
from tests.builders.fleets import fleet_of_machines
from tests.builders.trackerentries import NOW

if TYPE_CHECKING:
    from partitions.proxy.lifecycle import TrackerEntry


def entry(number: int = 0, **given: Any) -> TrackerEntry:
    """The entry of `partition(number)`."""
    return trackerentries.entry(number, **{"id": f"p-{number}", **given})


def partition(number: int, **given: object) -> VipuPartition:
    ipus = tuple(IpuId(0, number * 4 + position) for position in range(4))
    made = VipuPartition(f"p-{number}", 4, ipus, ReadyState.ACTIVE)
    return replace(made, **given)  # type: ignore[arg-type]


def view(*partitions: VipuPartition, address: str = "v1") -> ControllerView:
    spec = ControllerSpec(address, "vipu-ctrl=v1")
    return ControllerView(spec, fleet_of_machines(8, allocation="x"), partitions)


SILENT = ControllerView(ControllerSpec("v1", "vipu-ctrl=v1"), problem="v1: refused")


def test_a_world_in_order_has_no_drift() -> None:
    drift = compare([entry(0), entry(1, phase=Phase.RELEASED)], [view(partition(0))])
    assert drift == Drift()


@pytest.mark.parametrize("phase", [Phase.RESERVING, Phase.CREATING, Phase.RELEASING])
def test_unfinished_phases_are_found_and_not_called_lost(phase: Phase) -> None:
    drift = compare([entry(0, phase=phase)], [view()])
    assert drift.unfinished == (entry(0, phase=phase),)
    assert drift.lost == ()


def test_what_is_active_here_and_unknown_or_broken_there_is_found() -> None:
    broken = partition(1, ready_state=ReadyState.ERROR)
    drift = compare([entry(0), entry(1), entry(2)], [view(broken, partition(2, size=8))])
    assert drift.lost == (entry(0),)
    assert drift.faulty == (entry(1),)
    problem = "p-2 has 8 IPUs, not 4: it is not this job's"
    assert drift.replaced == ((entry(2), problem),)


def test_healed_is_what_failed_by_itself_and_is_active_there() -> None:
    failed = entry(0, phase=Phase.ERROR, reason=Reason.PARTITION_ERROR)
    assert compare([failed], [view(partition(0))]).healed == (failed,)
    for given, found in (
        ({"reason": Reason.CREATE_REFUSED}, {}),  # a reset that was refused has cleaned nothing
        ({"reason": Reason.PARTITION_LOST}, {}),
        ({}, {"ready_state": ReadyState.ERROR}),
        ({}, {"ready_state": ReadyState.PENDING}),
        ({}, {"size": 8}),
    ):
        drift = compare([replace(failed, **given)], [view(partition(0, **found))])
        assert drift == Drift()


def test_late_is_what_a_tombstone_asked_for_and_nothing_else() -> None:
    tomb = entry(0, phase=Phase.RELEASED, may_come=True)
    assert compare([tomb], [view(partition(0))]).late == (tomb,)
    assert compare([tomb], [view(partition(0))]).untracked == ()
    for others in (
        [tomb, entry(9, id="p-0")],  # somebody holds the id by now
        [replace(tomb, may_come=False)],
        [replace(tomb, size=8)],
        [replace(tomb, controller="v2")],
        [replace(tomb, scope=scope_of_settings(PartitionSettings(allocation_id="b")))],
        [replace(tomb, num_gcds=2)],
    ):
        assert compare(others, [view(partition(0, allocation_id="a"))]).late == ()
    assert compare([replace(tomb, num_gcds=2)], [view(partition(0, num_gcds=2))]).late
    made = [view(partition(0, num_gcds=2, reconfigurable=True))]
    for terms, is_ours in {
        "2r": True,
        "r": True,
        "": True,
        "?": True,
        "4r": False,
        "2s": False,
    }.items():
        assert bool(compare([replace(tomb, terms=terms)], made).late) is is_ours, terms
    today = ControllerSpec("v1", "a=b", PartitionSettings(num_gcds=4))
    late = tombstones.finish_release(
        entry(0, phase=Phase.RELEASING, num_gcds=2, terms="2r", may_come=True), NOW
    )
    assert compare([late], [replace(made[0], spec=today)]).late == (late,)


def test_a_silent_or_unasked_controller_proves_nothing() -> None:
    assert compare([entry(0)], [SILENT]).lost == ()
    assert compare([entry(0)], []).lost == ()


def test_untracked_are_those_that_no_live_entry_has_at_that_controller() -> None:
    drift = compare(
        [entry(0), entry(1, phase=Phase.RELEASED), entry(2, controller="v2")],
        [view(partition(0), partition(1), partition(2)), view(partition(0), address="v2")],
    )
    assert drift.untracked == (("v1", "p-1"), ("v1", "p-2"), ("v2", "p-0"))
    assert drift.untracked_by_controller == {"v1": 2, "v2": 1}


def test_stats_counts_what_exists_and_trusts_the_tracker_where_nobody_answers() -> None:
    entries = [
        entry(0),
        entry(1, phase=Phase.RESERVING),
        entry(2, phase=Phase.ERROR),
        entry(3, phase=Phase.RELEASED),
        entry(4, phase=Phase.RELEASING, namespace="other"),
    ]
    listed = view(partition(0), partition(4))
    assert stats(entries, [listed]) == {
        "default": {"used": 4, "available": 24},
        "other": {"used": 4, "available": 24},
        "total": {"used": 8, "available": 24},
    }
    assert stats(entries, [SILENT])["total"] == {"used": 12, "available": 0}


def test_used_and_available_never_exceed_the_fleet() -> None:
    entries = [entry(0, phase=Phase.RESERVING), entry(1), entry(2)]
    found = stats(entries, [view(partition(1))])["total"]
    assert found["used"] + found["available"] == 32


def test_stats_has_its_keys_in_the_order_of_the_first_proxy() -> None:
    text = json.dumps(stats([entry(0, namespace="zz"), entry(1)], [view(partition(0))]))
    assert list(json.loads(text)) == ["zz", "total"]
    assert text.index('"used"') < text.index('"available"')


def test_a_namespace_called_total_does_not_hide_the_total() -> None:
    found = stats([entry(0, namespace="total"), entry(1)], [view(partition(0), partition(1))])
    assert list(found) == ["default", "total"]
    assert found["total"]["used"] == 8


def test_query_without_controllers_is_not_available() -> None:
    assert query([], 2) == {
        "available": False,
        "numOfPartitions": 0,
        "message": "no V-IPU controller answers: none is configured",
    }
    assert query([SILENT], 2)["message"] == "no V-IPU controller answers: v1: refused"
    assert query([SILENT, view()], 2)["available"] is True


def test_records_survive_their_json() -> None:
    made = partition_of(entry(active_at=NOW, message="x", reason="y"))
    assert made.node_selector == {"vipu-ctrl": "v1"}
    assert partition_from_json(json.loads(json.dumps(partition_to_json(made)))) == made
    shortage = Shortage(Reason.NO_CAPACITY, "none left", 3)
    waiting = waiting_partition(Request("u", "ns", "job", 1, 8, 2), shortage)
    assert (waiting.phase, waiting.needed, waiting.free, waiting.id) == ("waiting", 8, 3, "")
    assert partition_from_json(partition_to_json(waiting)) == waiting


def test_an_entry_without_label_selects_no_nodes() -> None:
    assert partition_of(entry(label="")).node_selector == {}
