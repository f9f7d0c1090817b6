"""The partitions under our id that can be ours, by V-IPU's list."""

from __future__ import annotations

from typing import Any

import pytest

from partitions.proxy.controllers import PartitionSettings
from partitions.proxy.drift import mismatch, scope_of_settings
from partitions.vipu.types import ReadyState, VipuPartition
from tests.builders.trackerentries import entry


def listed(**given: Any) -> VipuPartition:
    fields = {"size": 4, "cluster_id": "c1", "allocation_id": "a1"} | given
    return VipuPartition("p-job-default-0", ipus=(), ready_state=ReadyState.ACTIVE, **fields)


@pytest.mark.parametrize(
    ("cluster", "allocation"), [("", ""), ("c1", ""), ("", "a1"), ("c1", "a1")]
)
def test_what_has_all_that_was_asked_for_can_be_ours(cluster: str, allocation: str) -> None:
    held = entry(
        scope=scope_of_settings(PartitionSettings(cluster_id=cluster, allocation_id=allocation))
    )
    assert mismatch(held, listed()) == ""


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"size": 8}, "has 8 IPUs, not 4"),
        ({"cluster_id": "c2"}, "is in another cluster, c2"),
        ({"allocation_id": "a2"}, "is in another allocation, a2"),
    ],
)
def test_what_differs_in_one_thing_is_another_partition(found: dict[str, Any], says: str) -> None:
    held = entry(scope=scope_of_settings(PartitionSettings(cluster_id="c1", allocation_id="a1")))
    assert says in mismatch(held, listed(**found))


def test_what_v_ipu_or_the_entry_does_not_tell_is_no_difference() -> None:
    held = entry(scope=scope_of_settings(PartitionSettings(cluster_id="c1", allocation_id="a1")))
    assert mismatch(held, listed(cluster_id="", allocation_id="")) == ""
    assert mismatch(entry(scope=""), listed(cluster_id="c2", allocation_id="a2")) == ""


def test_what_was_asked_has_one_short_form_for_each_place() -> None:
    names = ["", "a", "b", "x" * 300]
    forms = {
        scope_of_settings(PartitionSettings(cluster_id=c, allocation_id=a))
        for c in names
        for a in names
    }
    assert len(forms) == len(names) ** 2
    assert max(map(len, forms)) == 13
    assert scope_of_settings(PartitionSettings()) == ""
